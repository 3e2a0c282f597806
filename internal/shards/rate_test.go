package shards_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/shards"
)

// Turns follow each other at the rate, whoever asks, and one that is too far away is not taken.
func TestTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := shards.Of(b.rdb, b.k)
	turn := func(grants int, most time.Duration) (bool, time.Duration) {
		t.Helper()
		given, wait, err := k.Turn(t.Context(), &shards.RateCall{Sink: "kafka", PerSecond: 10, Grants: grants, Most: most})
		require.NoError(t, err)
		return given, wait
	}
	given, wait := turn(600, 0)
	require.True(t, given)
	require.Zero(t, wait, "the first one need not wait")
	given, wait = turn(1, 30*time.Second)
	require.False(t, given, "600 grants at 10 a second take a minute")
	require.InDelta(t, time.Minute, wait, float64(20*time.Second))
	given, wait = turn(1, time.Hour)
	require.True(t, given)
	require.InDelta(t, time.Minute, wait, float64(20*time.Second))
	_, last := turn(1, time.Hour)
	require.InDelta(t, wait+100*time.Millisecond, last, float64(20*time.Second))
	left := b.rdb.PTTL(t.Context(), b.k.Rate("kafka")).Val()
	require.InDelta(t, time.Minute, left, float64(20*time.Second), "the key ends by itself")
}
