package recovery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A server's settings could lose grants, so a process would refuse to start with it. The shard does not open there, not
// even by a person's decision, until the settings are right.
func TestServerThatIsRefusedOpensNoShard(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.rec = w.recoverer(func(c *recovery.Config) {
		c.Check = func(s *store.Server) error { return s.Check(hongbao.DurabilityFast) }
	})
	w.grab(t, w.rdb, 10)
	w.settle(t)
	old := w.older(t)
	w.restart(t, "")
	require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		require.NoError(t, w.rec.OpenFrozen(t.Context(), 0))
		return w.logs.FilterMessageSnippet("ALARM").Len() > 0
	}, "the alarm comes")
	alarm := w.logs.FilterMessageSnippet("ALARM").All()[0].ContextMap()
	require.Equal(t, "shard_frozen", alarm["code"])
	require.Contains(t, alarm["error"], "allkeys-lru")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)))
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.Contains(t, reports[0].Refused, "allkeys-lru")
	require.False(t, reports[0].Lost())

	require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	w.rec = w.recoverer(func(c *recovery.Config) {
		c.Check = func(s *store.Server) error { return s.Check(hongbao.DurabilityFast) }
	})
	w.opens(t)

	w.restart(t, old)
	require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	reports, err = w.rec.Reports(t.Context())
	require.NoError(t, err)
	err = w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone"))
	require.ErrorContains(t, err, "allkeys-lru")
	require.NotContains(t, err.Error(), "has changed meanwhile")
	head, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	require.True(t, head.Frozen)
}
