package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// near draws a run of events near an edge of the done bitmaps' chunks, or anywhere in the first three chunks.
func near(t *rapid.T) stream.SeqRange {
	edge := rapid.SampledFrom([]int64{1, 8, store.ChunkEvents, 2 * store.ChunkEvents, 2*store.ChunkEvents + 4000}).Draw(
		t, "edge")
	first := max(1, edge+rapid.Int64Range(-20, 20).Draw(t, "from"))
	length := rapid.SampledFrom([]int64{1, 1, 2, 7, 8, 9, 16, 64, 128, 3000}).Draw(t, "length")
	return stream.SeqRange{First: first, Last: first + length - 1}
}

// Random runs of events are acked, in any order and repeatedly. Exactly these events become done.
func TestDoneBits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.group(t, "kafka")
	rapid.Check(t, func(rt *rapid.T) {
		k := storetest.FarAlong(t, storetest.InitializedOn(t, b.rdb, 1)).Shard(0)
		want := map[int64]bool{}
		for range rapid.IntRange(1, 6).Draw(rt, "acks") {
			runs := []stream.SeqRange{}
			for range rapid.IntRange(1, 4).Draw(rt, "runs") {
				r := near(rt)
				runs = append(runs, r)
				for seq := r.First; seq <= r.Last; seq++ {
					want[seq] = true
				}
			}
			acked, err := k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", runs...), nil)
			require.NoError(rt, err)
			require.Zero(rt, acked)
		}
		for range 4 {
			r := near(rt)
			got, err := k.Group("kafka").Done(t.Context(), r)
			require.NoError(rt, err)
			for seq := r.First; seq <= r.Last; seq++ {
				require.Equal(rt, want[seq], got.Has(seq), "seq %d of %v", seq, r)
			}
		}
		var count int64
		for chunk := range int64(3) {
			n, err := b.rdb.BitCount(t.Context(), k.Keys.Done("kafka", chunk), nil).Result()
			require.NoError(rt, err)
			count += n
			size, err := b.rdb.StrLen(t.Context(), k.Keys.Done("kafka", chunk)).Result()
			require.NoError(rt, err)
			require.LessOrEqual(rt, size, int64(store.ChunkEvents/8))
		}
		require.EqualValues(rt, len(want), count)
	})
}

func TestAckEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	ids := b.events(t, "rain", 2, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 9)
	acked, err := b.k.Group("kafka").Ack(ctx, stream.OfCampaign("", stream.SeqRange{First: 1, Last: 3}), ids[:2])
	require.NoError(t, err)
	require.Equal(t, 2, acked)
	acked, err = b.k.Group("kafka").Ack(ctx, stream.OfCampaign("", stream.SeqRange{First: 1, Last: 4}), ids)
	require.NoError(t, err)
	require.Equal(t, 1, acked, "two were acked before")
	require.Empty(t, b.owners(t, "kafka"))

	other, err := b.k.Group("balance").Done(ctx, stream.SeqRange{First: 1, Last: 4})
	require.NoError(t, err)
	require.False(t, other.Has(1), "an ack of one sink does not mark the event for another sink")

	many := make([]string, 2500)
	for i := range many {
		many[i] = "1-1"
	}
	acked, err = b.k.Group("kafka").Ack(ctx, nil, many)
	require.NoError(t, err)
	require.Zero(t, acked)
}
