package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A process forgets a reported grant after ten seconds if it is settled, and otherwise after a minute.
func TestGrantsAreForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1", "u2/r2")
	b.grab(t, "rain", "u3/r3")
	now := time.Now()
	for _, step := range []struct {
		epoch, settled int64
		later          time.Duration
		remembered     int
		dropped        int64
	}{
		{1, 3, 9 * time.Second, 2, 0},
		{1, 1, 11 * time.Second, 2, 0},
		{2, 3, 11 * time.Second, 2, 0},
		{1, 2, 11 * time.Second, 1, 0},
		{1, 2, 59 * time.Second, 1, 0},
		{1, 2, 61 * time.Second, 0, 3},
	} {
		n, dropped := store.Forget(b.k, step.epoch, step.settled, now.Add(step.later))
		require.Equal(t, []any{step.remembered, step.dropped}, []any{n, dropped}, "%+v", step)
	}
	bytes, forgotten := b.store.Remembered()
	require.Zero(t, bytes)
	require.EqualValues(t, 1, forgotten, "one grant was not settled")
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	w, err := b.k.Witnesses(t.Context())
	require.NoError(t, err)
	require.Zero(t, w[0].Sent, "it does not know all")
}

// A user reads a receipt again and again, and repeats the grab. The process remembers the receipt a bounded number of
// times, also in the next epoch, and again after it has forgotten it.
func TestReceiptReadOftenIsRememberedOnce(t *testing.T) {
	t.Parallel()
	for name, reports := range map[string]func(t *testing.T, b *bundle){
		"grabs": func(t *testing.T, b *bundle) {
			t.Helper()
			b.grab(t, "rain", "u1/r1")
		},
		"reads": func(t *testing.T, b *bundle) {
			t.Helper()
			h, err := b.k.Place("rain").UserReceipts(t.Context(), "u1")
			require.NoError(t, err)
			require.NoError(t, h.Report(t.Context(), "u1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.load(t, spec("rain", 10))
			b.grab(t, "rain", "u1/r1")
			granted := b.rdb.Time(t.Context()).Val()
			testkit.Eventually(t, 30*time.Second, func() bool {
				return b.rdb.Time(t.Context()).Val().Sub(granted) >= time.Millisecond
			}, "Redis' clock advances, so that a repeat is not in the millisecond of the grant")
			bytes := func(times int) int64 {
				for range times {
					reports(t, b)
				}
				n, _ := b.store.Remembered()
				return n
			}
			first := bytes(0)
			once := bytes(1)
			require.Equal(t, once, bytes(20))
			require.NoError(t, b.rdb.HIncrBy(t.Context(), b.k.Keys.Meta(), "epoch", 1).Err())
			require.NoError(t, store.WitnessOf(t.Context(), b.k))
			again := bytes(1)
			require.Greater(t, again, once, "in a new epoch the seq may belong to a different grant")
			require.Equal(t, again, bytes(20))
			store.Forget(b.k, 2, 1, time.Now().Add(2*time.Minute))
			require.Zero(t, bytes(0))
			require.Positive(t, bytes(1))
			require.Less(t, bytes(20), 2*first)
		})
	}
}
