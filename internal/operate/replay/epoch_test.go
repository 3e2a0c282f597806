package replay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store"
)

// opensAgain raises the epochs during the target's second batch, as if both shards had opened again.
func (w *world) opensAgain(t *testing.T) {
	t.Helper()
	w.Target.Before = func(calls int, _ []hongbao.Grant) []error {
		for shard := range deadlettertest.Shards {
			if calls == 2 {
				require.NoError(t, w.Redis.HSet(t.Context(), w.Store.Shard(shard).Keys.Meta(), "epoch", 2).Err())
			}
		}
		return nil
	}
}

// A shard opens with a new epoch during a replay. The run fails with ErrStale, and stores neither done bits nor its
// position any more. The next run delivers the rest.
func TestReplayOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	w.opensAgain(t)
	cfg := w.config("copy")
	cfg.Parallel = 1
	r, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := r.Run(t.Context(), replay.Options{})
	require.ErrorIs(t, err, store.ErrStale)
	require.ErrorContains(t, err, "start it again under this name to continue")
	require.False(t, report.Finished)
	require.Equal(t, 2, w.Target.Calls, "the fault fired")
	done, err := w.Store.Shard(0).Group(replay.DoneSink("copy")).Done(t.Context(),
		stream.SeqRange{First: 1, Last: 100})
	require.NoError(t, err)
	require.True(t, done.Has(20))
	require.False(t, done.Has(21), "the second batch is delivered again")

	require.True(t, w.run(t, cfg, replay.Options{}).Finished)
	for event := range w.events(all) {
		require.Positive(t, w.Target.Copies[event])
	}
}

// A failover loses the last done bits of a replay, and its position. The next run reads the target, and delivers only
// what it lacks.
func TestReplayAfterLostDoneBits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	cfg := w.config("copy")
	reads := 0
	cfg.Read = func(_ context.Context, since time.Time, has func(*hongbao.Grant)) error {
		reads++
		require.WithinDuration(t, time.Now().Add(-stream.ClockSkew), since, time.Minute)
		for shard := range deadlettertest.Shards {
			for seq := int64(1); seq <= w.Seq[shard]; seq++ {
				if g := deadlettertest.Grant(shard, seq); w.Target.Copies[g.EventID()] > 0 {
					has(&g)
				}
			}
		}
		return nil
	}
	require.True(t, w.run(t, cfg, replay.Options{Filter: replay.Filter{}}).Finished)
	require.Zero(t, reads)
	for shard := range deadlettertest.Shards {
		keys := w.Store.Shard(shard).Keys
		require.NoError(t, w.Redis.Del(t.Context(), keys.Done(replay.DoneSink("copy"), 0)).Err())
		require.NoError(t, w.Redis.HDel(t.Context(), keys.Replay("copy"), "next").Err())
		require.NoError(t, w.Redis.HSet(t.Context(), keys.Meta(), "epoch", 2).Err())
	}
	report := w.run(t, cfg, replay.Options{})
	require.True(t, report.Finished)
	require.Equal(t, 1, reads)
	require.Zero(t, report.Delivered)
	require.Equal(t, w.events(all), w.Target.Copies)
	done, err := w.Store.Shard(0).Group(replay.DoneSink("copy")).Done(t.Context(), stream.SeqRange{First: 1, Last: 1})
	require.NoError(t, err)
	require.True(t, done.Has(1), "the done bits are back")
}
