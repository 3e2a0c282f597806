package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
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
		_, err = w.shard().Reopen(t.Context(), &store.Reopening{Was: found, Mark: store.Owner{Deployment: "test"}, Epoch: 2, Last: last, Known: 10})
		require.ErrorContains(t, err, "HBRANGE", last)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	}
	n, err := w.rdb.XLen(t.Context(), w.store.Shard(0).Keys.Events()).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "nothing was written")
}
