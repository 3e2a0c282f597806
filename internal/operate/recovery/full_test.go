package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// full sets maxmemory so low that Redis refuses every command that needs more memory.
func (w *world) full(t *testing.T) {
	t.Helper()
	require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.True(t, store.IsOutOfMemory(w.rdb.Set(t.Context(), "x", "1", 0).Err()), "the fault fired")
}

// A full Redis is restarted, and its shard still opens. Then workers can ack and trim events, which frees memory.
func TestFullRedisOpensAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	w.restart(t, "")
	w.full(t)
	w.opens(t)
	_, err := w.shard().Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 10}), nil)
	require.NoError(t, err)
	_, err = w.shard().TrimEvents(t.Context(), store.Trim{Limit: 100, Groups: []string{"balance"}})
	require.NoError(t, err)
}

// A full Redis has lost its campaigns. Its shard opens once a person has accepted the loss, with stubs of these
// campaigns.
func TestFullRedisOpensAfterALoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)))
	w.full(t)
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")))
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)))
	state, err := w.rdb.HGet(t.Context(), w.store.Shard(0).Keys.Campaign(id), "state").Result()
	require.NoError(t, err)
	require.Equal(t, "frozen", state)
	_, _, err = w.store.Open(t.Context())
	require.NoError(t, err, "the mark of the key prefix is restored, too")
}
