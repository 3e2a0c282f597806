package recovery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis restarts repeatedly: without an event in between, with one event, and just before a boundary. Each opening
// skips at least one seq, every entry can be read, and no two grants have the same seq.
func TestRestartAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	seqs := map[int64]bool{}
	for i, grabs := range []int{1, 0, 0, 1, 0, 0} {
		for range grabs {
			a := w.grab(t, w.rdb, 1)[0]
			require.False(t, seqs[a.Receipts[0].Seq], "seq %d comes twice", a.Receipts[0].Seq)
			seqs[a.Receipts[0].Seq] = true
		}
		if i == 4 { // two seqs before a boundary
			require.NoError(t, w.rdb.HSet(t.Context(), w.store.Shard(0).Keys.Meta(), "seq", 9*store.ChunkEvents-2).Err())
		}
		w.restart(t, "")
		w.opens(t)
	}
	skipped, err := w.shard().Skipped(t.Context())
	require.NoError(t, err)
	require.Len(t, skipped, 6)
	raw, err := w.shard().Range(t.Context(), "-", "+", 100)
	require.NoError(t, err)
	require.Len(t, raw, 8)
	for _, r := range raw {
		_, err := stream.ParseEntry(0, r.ID, r.Values)
		require.NoError(t, err)
	}
}

// Redis refuses an opening that would skip no seq, because the opening's entry needs one.
func TestOpenRefusesAnEmptyRange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.restart(t, "")
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	for _, last := range []int64{0, 9, 10} {
		_, err = w.shard().Reopen(t.Context(), &store.Reopening{Was: found, Mark: store.Mark{Deployment: "test"}, Epoch: 2, Last: last, Known: 10})
		require.ErrorContains(t, err, "HBRANGE", last)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	}
	n, err := w.rdb.XLen(t.Context(), w.store.Shard(0).Keys.Events()).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "nothing was written")
}

// emptyOpening writes what an opening by an earlier build left behind: an entry that skips no seq, an invalid range,
// and a dead letter in each sink.
func (w *world) emptyOpening(t *testing.T) {
	t.Helper()
	ctx, k := t.Context(), w.store.Shard(0)
	seq, err := w.rdb.HGet(ctx, k.Keys.Meta(), "seq").Int64()
	require.NoError(t, err)
	was, err := w.rdb.HGet(ctx, k.Keys.Meta(), "skipped").Result()
	require.NoError(t, err)
	text := fmt.Sprintf("epoch - %d 3 1700000000000\n%d %d", seq+1, seq, seq)
	entry, err := w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: k.Keys.Events(), Values: []any{"2", text}}).Result()
	require.NoError(t, err)
	require.NoError(t, w.rdb.HSet(ctx, k.Keys.Meta(), "epoch", 3, "skipped", fmt.Sprintf("%s,%d-%d", was, seq+1, seq)).Err())
	state, err := w.ledger.Shard(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, w.ledger.SetShard(ctx, 0, 2, ledger.ShardState{Epoch: 3, Token: state.Token}))
	for _, sink := range []string{"balance", "kafka"} {
		require.NoError(t, w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: k.Keys.Dead(sink), Values: []any{
			"v", "1", "group", sink, "entry", entry, "seq", "0", "grant", "", "class", "permanent",
			"reason", "entry " + entry + " can't be read", "attempts", "1", "first", "1", "last", "1", "entry.2", text,
		}}).Err())
	}
}

// An earlier build opened the shard without skipping a seq. A worker removes the invalid range and resolves the dead
// letters of that opening. Other letters stay, and a later grant keeps the seq that the opening's entry also has.
func TestWorkerRepairsAnEmptyOpening(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.restart(t, "")
	w.opens(t)
	w.emptyOpening(t)
	other := w.store.Shard(0).Keys.Dead("kafka")
	require.NoError(t, w.rdb.XAdd(t.Context(),
		&redis.XAddArgs{Stream: other, Values: []any{"seq", 0, "entry.1", "grant rain forged"}}).Err())
	answers := w.grab(t, w.rdb, 1)
	require.EqualValues(t, store.ChunkEvents, answers[0].Receipts[0].Seq, "it shares the seq")

	testkit.Go(t, func(ctx context.Context) error { return w.rec.Run(ctx, nil) })
	testkit.Eventually(t, 30*time.Second, func() bool {
		skipped, err := w.shard().Skipped(t.Context())
		return err == nil && len(skipped) == 1
	}, "the invalid range is gone")
	for sink, left := range map[string]int64{"balance": 0, "kafka": 1} {
		require.Equal(t, left, w.rdb.XLen(t.Context(), w.store.Shard(0).Keys.Dead(sink)).Val(), sink)
		log, err := w.shard().ResolvedLetters(t.Context(), sink, "-", "+", 10)
		require.NoError(t, err)
		require.Len(t, log, 1)
		require.Contains(t, log[0].Values, store.Dropped)
	}
	w.settle(t)
	highest, err := w.ledger.HighestSeq(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, store.ChunkEvents, highest)
	w.restart(t, "")
	w.opens(t)
	_, err = w.shard().Skipped(t.Context())
	require.NoError(t, err)
}
