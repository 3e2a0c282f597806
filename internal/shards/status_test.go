package shards_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := shards.Of(b.rdb, b.k)
	status := func() shards.GroupStatus {
		s, err := k.Status(t.Context(), "balance")
		require.NoError(t, err)
		return s
	}
	ids := b.events(t, "rain", 1, 2, 3, 1)
	before := status()
	require.EqualValues(t, 7, before.Seq)
	require.EqualValues(t, 7, before.Waiting, "no group yet: all of it waits")

	b.group(t, "balance")
	s := status()
	require.EqualValues(t, 7, s.Waiting)
	require.Empty(t, s.Workers)
	require.Less(t, s.Oldest, time.Minute)

	// An entry that is done behind one that is parked does not wait.
	b.read(t, "balance", "w1", 3)
	n, err := k.Park(t.Context(), "balance", "w1", []shards.Parking{{ID: ids[0], Level: 0, Attempts: 1}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = k.Ack(t.Context(), "balance", []stream.SeqRange{{First: 2, Last: 3}}, ids[1:2])
	require.NoError(t, err)
	s = status()
	require.EqualValues(t, 5, s.Waiting)
	require.EqualValues(t, 1, s.Parked)
	require.Len(t, s.Workers, 1)
	require.Equal(t, "w1", s.Workers[0].Name)
	require.EqualValues(t, 1, s.Workers[0].Holds)
}

// A worker for which nothing comes is seen all the same, each time it looks for what others left behind.
func TestStatusSeesAnIdleWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := shards.Of(b.rdb, b.k)
	b.group(t, "kafka")
	got, gone := b.take(t, "w1", 1)
	require.Empty(t, got)
	require.Empty(t, gone)
	s, err := k.Status(t.Context(), "kafka")
	require.NoError(t, err)
	require.Len(t, s.Workers, 1)
	require.Equal(t, "w1", s.Workers[0].Name)
	require.Zero(t, s.Workers[0].Holds)
	require.Zero(t, s.Waiting)
}
