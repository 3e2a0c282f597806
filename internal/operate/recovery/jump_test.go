package recovery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// ages makes the shard's entries 200 s older. Redis was down for that time.
func (w *world) ages(t *testing.T) {
	t.Helper()
	ctx, events := t.Context(), w.shard().Keys.Events()
	entries, err := w.rdb.XRange(ctx, events, "-", "+").Result()
	require.NoError(t, err)
	require.NoError(t, w.rdb.Del(ctx, events).Err())
	require.NoError(t, w.rdb.HDel(ctx, w.shard().Keys.Meta(), "watched").Err())
	for i, e := range entries {
		require.NoError(t, w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: events, Values: e.Values,
			ID: fmt.Sprintf("%d-%d", time.Now().Add(-200*time.Second).UnixMilli(), i)}).Err())
	}
}

// However long ago Redis' last write was, an opening skips a constant number of seqs: after 200 s, and with a file from
// before the shard's first event.
func TestJumpDoesNotDependOnTheTime(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]func(t *testing.T, w *world) string{
		"200 s": func(t *testing.T, w *world) string {
			t.Helper()
			w.grab(t, w.rdb, 10)
			w.settle(t)
			w.ages(t)
			return w.older(t)
		},
		"never": func(t *testing.T, w *world) string { t.Helper(); return w.older(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			old := older(t, w)
			w.grab(t, w.rdb, 20)
			w.settle(t)
			last := w.seq(t)
			w.restart(t, old)
			w.restores(t, w.guarded())
			require.LessOrEqual(t, w.seq(t)-last, int64(5*store.ChunkEvents/2))
			require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 1}, outcomes(w.grab(t, w.rdb, 1)))
		})
	}
}

// A shard was opened without a process that had seen more events than the opening skipped. The process does not freeze
// the shard because its seq is lower: the epoch is later. The process is late, and after a person has accepted that
// loss, it freezes the shard no more.
func TestSightAboveTheJump(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	old := w.older(t)
	late := w.process(t)
	meta := w.shard().Keys.Meta()
	require.NoError(t, w.rdb.HSet(t.Context(), meta, "seq", 10*store.ChunkEvents).Err()) // as if it had granted them
	_, err := w.over(late.rdb).Shard(0).Head(t.Context())
	require.NoError(t, err)
	w.restart(t, old)
	w.opens(t)
	require.Less(t, w.seq(t), int64(5*store.ChunkEvents))
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 1}, outcomes(w.grab(t, late.rdb, 1)),
		"an earlier epoch")

	late.watch(t)
	w.isFrozen(t)
	require.Contains(t, <-late.alarms, fmt.Sprintf("event %d was seen in epoch 1", 10*store.ChunkEvents))
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, store.ChunkEvents-1, reports[0].Late, "the last seq that the opening skipped")
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "no one was paid twice")))
	w.looks(t, late)
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err, "the loss is accepted")
	require.Less(t, w.seq(t), int64(5*store.ChunkEvents))
}

// A process has seen a later epoch than Redis has, and a lower seq. Its next call freezes the shard. The shard opens
// again in an epoch above that.
func TestSightOfALaterEpoch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	w.restart(t, "")
	w.opens(t)
	w.grab(t, w.rdb, 1)
	require.NoError(t, w.rdb.HSet(t.Context(), w.shard().Keys.Meta(), "epoch", 1, "seq", 3*store.ChunkEvents).Err())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)))
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.True(t, reports[0].Lost())
	require.EqualValues(t, 2, reports[0].SeenIn)
	require.Contains(t, reports[0].String(), fmt.Sprintf("callers have seen event %d of epoch 2", store.ChunkEvents))
	require.Error(t, reports[0].Blind(), "Redis has lost an opening")
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "no one was paid twice")))
	head, err := w.shard().OpenHead(t.Context())
	require.NoError(t, err)
	require.Greater(t, head.Epoch, int64(2))
}

// An opening in an epoch that a process has seen would hide its events. Redis refuses it.
func TestOpenRefusesAnEpochThatWasSeen(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.restart(t, "")
	w.saw(t, 0)
	w.sawIn(t, 2, 5)
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	_, err = w.shard().Reopen(t.Context(), &store.Reopening{Was: found, Mark: store.Owner{Deployment: "test"}, Epoch: 2,
		Last: store.ChunkEvents - 1, Known: 10})
	require.ErrorContains(t, err, "HBRANGE the opening would begin epoch 2, and a process has seen event 5 of epoch 2")
}

// A silent process had reported a grant to a user, and its seq lies above all that the opening skipped. Its packet is
// withheld. The user gets it under a new seq: after the opening, or by the next restore, to which the process reports.
func TestGrantAboveTheJumpGetsANewSeq(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("another restore: ", again), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p, silent := w.process(t), w.process(t)
			p.wins(t, 10)
			silent.wins(t, 1)
			old := w.older(t)
			p.wins(t, 1)
			w.settle(t) // so something is known to be lost
			require.NoError(t, w.rdb.HSet(t.Context(), w.shard().Keys.Meta(), "seq", 10*store.ChunkEvents).Err())
			won := silent.wins(t, 1)
			w.restart(t, old)
			w.restores(t, w.guarded())
			require.Subset(t, w.withheld(t), packetsOf(won))
			if again {
				w.restart(t, "")
			}
			silent.watch(t)
			if again {
				w.restores(t, w.guarded())
			}
			w.keepsPackets(t, won)
			require.Less(t, w.seq(t), int64(8*store.ChunkEvents))
			require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
			w.adds(t)
		})
	}
}
