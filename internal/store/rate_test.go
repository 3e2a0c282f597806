package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// Several calls reserve deliveries at 10 grants a second. Each must wait for those before it. A reservation with too
// long a wait is refused.
func TestTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	turnNow := func() time.Duration {
		t.Helper()
		taken, wait, err := k.ReserveRate(t.Context(), &store.RateCall{Sink: "kafka", PerSecond: 10, Portion: 2, Most: time.Second})
		require.NoError(t, err)
		require.Equal(t, wait <= time.Second, taken)
		return wait
	}
	turn := func(grants int, most time.Duration) (bool, time.Duration) {
		t.Helper()
		taken, wait, err := k.ReserveRate(t.Context(), &store.RateCall{Sink: "kafka", PerSecond: 10, Grants: grants, Portion: 2,
			Most: most})
		require.NoError(t, err)
		return taken, wait
	}
	taken, wait := turn(600, 0)
	require.True(t, taken)
	require.Zero(t, wait, "the first call does not wait")
	taken, wait = turn(1, time.Hour)
	require.True(t, taken)
	require.InDelta(t, time.Minute, wait, float64(20*time.Second))
	_, last := turn(1, time.Hour)
	require.InDelta(t, wait+100*time.Millisecond, last, float64(20*time.Second))
	left := b.rdb.PTTL(t.Context(), b.k.Keys.Rate("kafka")).Val()
	require.InDelta(t, time.Minute, left, float64(20*time.Second), "the key ends by itself")
	require.InDelta(t, 1200*time.Millisecond, turnNow(), float64(time.Millisecond),
		"an old reservation counts for at most Most and one portion")
	require.LessOrEqual(t, turnNow(), 1200*time.Millisecond)
	require.LessOrEqual(t, b.rdb.PTTL(t.Context(), b.k.Keys.Rate("kafka")).Val(), 1300*time.Millisecond, "asking books nothing")
}
