package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// over initializes a deployment of five shards. It loads campaign "rain" with nine packets, on three of the shards. A
// user may have three packets.
func over(t *testing.T) (*redis.Client, *store.Store, []store.Place) {
	t.Helper()
	b := bundleOf(storetest.Initialized(t, 5))
	c := spec("rain", 9)
	c.Shards, c.Limits = 3, []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 3}}
	b.load(t, c)
	return b.rdb, b.store, b.store.Places("rain", 3)
}

func grabOn(t *testing.T, k *store.Shard, user string, n int) {
	t.Helper()
	for range n {
		storetest.Grab(t, k, "rain", user)
	}
}

// A user has packets on all three places. Held returns all of them, or an error if a place is lost.
func TestUserHeldOverPlaces(t *testing.T) {
	t.Parallel()
	rdb, st, places := over(t)
	held := func(user string) ([]store.UserReceipts, error) {
		return st.Campaign("rain").UserReceipts(t.Context(), user)
	}
	list, err := held("u1")
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Empty(t, store.ReceiptsOf(list))
	for _, j := range []int{2, 0, 1} { // grabs in an order that differs from that of the places
		grabOn(t, places[j].Shard, "u1", 1)
		before := rdb.Time(t.Context()).Val()
		testkit.Eventually(t, 30*time.Second, func() bool {
			return rdb.Time(t.Context()).Val().Sub(before) >= time.Millisecond
		}, "Redis' clock advances")
	}
	list, err = held("u1")
	require.NoError(t, err)
	var packets []int64
	for _, r := range store.ReceiptsOf(list) {
		packets = append(packets, r.Packet)
	}
	require.Equal(t, []int64{3, 1, 2}, packets)

	require.NoError(t, rdb.HSet(t.Context(), places[1].Keys.Meta(), "frozen", 1).Err())
	list, err = held("u1")
	require.NoError(t, err)
	require.NoError(t, list[0].Open)
	require.ErrorIs(t, list[1].Open, store.ErrFrozen)
	require.NoError(t, rdb.HDel(t.Context(), places[1].Keys.Meta(), "frozen").Err())

	require.NoError(t, rdb.HSet(t.Context(), places[2].Keys.Campaign("rain"), "state", "frozen").Err())
	_, err = held("u2")
	require.ErrorIs(t, err, store.ErrLost)
	require.NoError(t, rdb.Del(t.Context(), places[2].Keys.Campaign("rain")).Err())
	list, err = held("u1")
	require.ErrorIs(t, err, store.ErrNotInRedis, "without one place the receipts are incomplete")
	require.Len(t, list, 3)
	require.NoError(t, rdb.Set(t.Context(), places[2].Keys.Campaign("rain"), "x", 0).Err())
	_, err = held("u1")
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, rdb.HSet(t.Context(), places[0].Keys.Campaign("rain"), "places", "many").Err())
	_, err = held("u1")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// The window of a campaign on three places is sold out when every place is. It is frozen when every place is.
func TestWindowOverPlaces(t *testing.T) {
	t.Parallel()
	rdb, st, places := over(t)
	status := func() string {
		t.Helper()
		w, err := st.Campaign("rain").Window(t.Context())
		require.NoError(t, err)
		return w.Status()
	}
	for j, k := range places {
		require.Equal(t, "open", status(), "%d places are empty", j)
		grabOn(t, k.Shard, "u1", 3)
	}
	require.Equal(t, "sold_out", status())
	require.NoError(t, rdb.HSet(t.Context(), places[0].Keys.Meta(), "frozen", 1).Err())
	require.Equal(t, "sold_out", status(), "only the home is frozen")
	for _, k := range places[1:] {
		require.NoError(t, rdb.HSet(t.Context(), k.Keys.Campaign("rain"), "state", "frozen").Err())
	}
	require.Equal(t, "frozen", status())
	require.NoError(t, rdb.HDel(t.Context(), places[0].Keys.Meta(), "frozen").Err())
	require.NoError(t, rdb.Del(t.Context(), places[1].Keys.Campaign("rain")).Err())
	require.Equal(t, "open", status(), "one place is missing and may have packets left")
}

// A full Redis answers what is only read: a campaign's state and keys, and a user's receipts.
func TestFullRedisIsRead(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		rdb := testkit.NewRedis(t, testkit.RedisOptions{Binary: program}).Client(t)
		b := bundleOf(storetest.InitializedOn(t, rdb, 5))
		c := spec("rain", 9)
		c.Shards = 3
		b.load(t, c)
		places := b.store.Places("rain", 3)
		grabOn(t, places[1].Shard, "u1", 1)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		st, found, err := b.store.Campaign("rain").Status(t.Context())
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 1, st.Granted)
		for i, p := range places {
			keys, err := p.CampaignKeys(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 3-i%2, keys.Stocked)
		}
		list, err := b.store.Campaign("rain").UserReceipts(t.Context(), "u1")
		require.NoError(t, err)
		require.Len(t, store.ReceiptsOf(list), 1)
	})
}
