package consumer

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// asleep simulates a worker that sleeps between the read of its entries and the check whether they are real. The hook
// calls others, which lets other workers act, before the first such check.
type asleep struct {
	others func()
	fell   atomic.Bool
}

func (*asleep) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*asleep) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *asleep) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sleeps := slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any("done_floor")) }) &&
			h.fell.CompareAndSwap(false, true)
		if sleeps {
			h.others()
		}
		return next(ctx, cmds)
	}
}

// A worker sleeps with entries in hand. Meanwhile other workers finish the entries, and the trimmer deletes them with
// their done bits. The worker then delivers none of them, and raises no alarm about forged entries.
func TestSleptUntilItsEntriesWereTrimmed(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 3)
	h := &asleep{}
	h.others = func() {
		ctx := context.Background()
		_, err := b.keys().Group(group).Ack(ctx, stream.OfCampaign("", stream.SeqRange{First: 1, Last: 5}), ids)
		require.NoError(t, err)
		require.NoError(t, b.rdb.XDel(ctx, b.keys().Keys.Events(), ids...).Err())
		require.NoError(t, b.keys().RaiseDoneFloor(ctx, 0, 1, []string{group}))
	}
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	client := b.client(t, b.addr)
	client.AddHook(h)
	cfg.Deployment = b.over(t, client, b.client(t, b.addr))
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return h.fell.Load() }, "the fault fired")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Zero(t, s.numberOfCalls(), "the entries were done before")
	require.Empty(t, b.dead(t))
	require.Zero(t, w.Stats().Forged)
	require.Zero(t, w.logged("ALARM"))
}
