package store_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// One campaign is on one shard, a second one on three. Places returns their shards by the number at the home. Left
// counts the packets that are left on all places.
func TestPlacesOfACampaignInRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 4}})
	require.NoError(t, err)
	placesOf := func(id string) []store.Place {
		t.Helper()
		places, err := st.Campaign(id).Places(t.Context())
		require.NoError(t, err)
		return places
	}
	put := func(k *store.Shard, id string, fields ...any) {
		t.Helper()
		require.NoError(t, rdb.HSet(t.Context(), k.Keys.Campaign(id), fields...).Err())
	}

	require.Equal(t, []store.Place{st.Home("rain")}, placesOf("rain"), "no one knows it")
	put(st.Home("rain").Shard, "rain", "packets", 10, "loaded", 9)
	require.NoError(t, rdb.RPush(t.Context(), st.Home("rain").Keys.Stock("rain"), "4 1", "5 1", "6 1").Err())
	require.NoError(t, rdb.RPush(t.Context(), st.Home("rain").Keys.StockOf("rain", 2), "8 1", "9 1").Err())
	put(st.Home("rain").Shard, "rain", "generation", 2)
	require.Equal(t, []store.Place{st.Home("rain")}, placesOf("rain"))
	snow := st.Places("snow", 3)
	for j, k := range snow {
		put(k.Shard, "snow", "packets", 10, "granted", j+1, "places", 3)
	}
	require.Equal(t, snow, placesOf("snow"))

	ids := []string{"rain", "snow", "hail"}
	left, err := st.Left(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"rain": 6, "snow": 4}, left, "one is not loaded yet")
	require.NoError(t, rdb.Del(t.Context(), snow[1].Keys.Campaign("snow")).Err())
	left, err = st.Left(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"rain": 6}, left, "snow is omitted: one of its places is missing")

	put(snow[0].Shard, "snow", "places", 5)
	_, err = st.Campaign("snow").Places(t.Context())
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "5 shards")
	left, err = st.Left(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"rain": 6}, left)
}
