package closing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis is out of memory. A campaign can still be closed, refunded under its lock, and taken out of Redis.
func TestOutOfMemoryEndsACampaign(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}))
	retirer, err := closing.NewRetirer(closing.RetirerConfig{Store: b.store, Locks: b.locks, Log: b.log,
		Every: time.Second})
	require.NoError(t, err)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, b.rdb.Set(t.Context(), "x", "y", 0).Err(), "OOM")
	require.NoError(t, b.k.Place("rain").SetState(t.Context(), "paused", "open"))
	b.close()
	b.settle(3)
	taken, _, err := b.k.TakeLock(t.Context(),
		&store.LockCall{Name: "refund", Token: "me", Lease: time.Second})
	require.NoError(t, err)
	require.True(t, taken, "the refund's lock")
	_, err = b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	gone, err := retirer.Retire(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"rain"}, gone)
}

func TestRetire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	retirer := func(grace time.Duration) *closing.Retirer {
		r, err := closing.NewRetirer(closing.RetirerConfig{Store: b.store, Locks: b.locks, Log: b.log,
			Grace: grace, Every: 10 * time.Millisecond})
		require.NoError(t, err)
		return r
	}
	b.close()
	b.settle(3)
	gone, err := retirer(0).Retire(t.Context())
	require.NoError(t, err)
	require.Empty(t, gone, "a campaign that is closed and not refunded stays")
	r, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	gone, err = retirer(time.Hour).Retire(t.Context())
	require.NoError(t, err)
	require.Empty(t, gone, "its grace is not over")

	stop := testkit.Go(t, retirer(0).Run)
	testkit.Eventually(t, 30*time.Second, func() bool {
		n, err := b.rdb.Exists(t.Context(), b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.Receipts("rain"),
			b.k.Keys.Refunded()).Result()
		return err == nil && n == 0
	}, "it has left Redis")
	stop()
	s, err := b.Close(t.Context(), "rain", false)
	require.NoError(t, err)
	require.Equal(t, closing.Progress{Refund: &r}, s, "the ledger has the refund")
	again, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, r, again)
}
