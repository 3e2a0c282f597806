package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestKafkaHighestSeq(t *testing.T) {
	t.Parallel()
	b := real(t, testkit.Kafka(t))
	asker, _ := b.worker(t)
	highest := func(shard int, since time.Time) int64 {
		t.Helper()
		seq, err := asker.HighestSeq(t.Context(), shard, since)
		require.NoError(t, err)
		return seq
	}
	require.Zero(t, highest(0, time.Time{}), "an empty log")

	start := time.Now()
	early, _ := b.worker(t)
	early.now = func() time.Time { return start.Add(-time.Hour).Round(0) }
	require.Nil(t, early.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	require.Nil(t, early.Handle(t.Context(), testkit.Batch(b.store.grants(2, 30, decided))), "shard 2 shares the partition")
	require.EqualValues(t, 20, highest(0, time.Time{}))
	require.EqualValues(t, 20, highest(0, start.Add(-61*time.Minute)))
	require.EqualValues(t, 30, highest(2, start.Add(-61*time.Minute)))
	require.Zero(t, highest(0, start.Add(-time.Minute)), "all events were sent earlier")

	strangers(t, b)
	g, _ := orphan(t, b, 5, deferred) // seqs 21 to 25 of shard 0, and 3 of shard 4
	fencer, _ := forgetful(t, b)
	require.Nil(t, fencer.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, fencer.Stats().Fences, "the partition also has a fence record")
	for _, since := range []time.Time{{}, start.Add(-61 * time.Minute), start.Add(-time.Minute)} {
		require.EqualValues(t, 25, highest(0, since))
		require.EqualValues(t, 3, highest(4, since))
	}
	require.Zero(t, highest(2, start.Add(-time.Minute)))
	require.Zero(t, highest(0, start.Add(time.Hour)), "no record is that young")
	require.Zero(t, highest(1, time.Time{}), "the other partition is empty")
}
