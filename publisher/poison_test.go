package publisher

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

// An entry that can't be read, between two good ones of a stored batch, does its neighbours no harm.
func TestPoisonInsideAStoredBatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	b := setup(t)
	rdb := testkit.Redis(t).Client(t)
	space, err := lua.NewSpace(testkit.Prefix(t), 1)
	require.NoError(t, err)
	require.NoError(t, lua.Init(t.Context(), rdb, space, "d1"))
	k := space.Shard(0)
	add := func(values ...any) {
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Events(), Values: values}).Err())
	}
	entry := func(q int) {
		add("v", "1", "k", "grant", "c", "rain", "q", q, "e", "1", "t", time.Now().UnixMilli(), "g", fmt.Sprintf("%d 100 u%d - -", q, q))
	}
	entry(1)
	add("poison", "1e9")
	entry(2)
	raw, err := lua.Range(t.Context(), rdb, k, "-", "+", 10)
	require.NoError(t, err)
	var grants []hongbao.Grant
	for _, r := range raw {
		if e, err := hongbao.ParseEntry(0, r.ID, r.Values); err == nil { // the consumer buries the poison
			grants = append(grants, e.Grants...)
		}
	}
	worker := func(name string) (*Publisher, *wire) {
		c, err := dedup.NewClaims(dedup.Config{Redis: rdb, Space: space, Sink: "kafka", Owner: name, Lease: time.Minute, TakeLive: true})
		require.NoError(t, err)
		p, err := New(b.cfg, c, &lua.Reader{Redis: rdb, Space: space})
		require.NoError(t, err)
		t.Cleanup(p.Close)
		w := &wire{inner: p.transport}
		p.client = newClient(&b.cfg, w)
		return p, w
	}
	a, w := worker("a")
	w.fate = func() fate { return lost } // the sink is away: the claim stays
	for _, err := range a.Handle(t.Context(), grants) {
		require.True(t, hongbao.IsOutage(err), err)
	}
	p, _ := worker("b")
	require.Nil(t, p.Handle(t.Context(), grants))
}
