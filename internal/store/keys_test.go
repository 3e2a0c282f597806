package store

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// nowhere is a client for tests that do not call Redis.
var nowhere = redis.NewClient(&redis.Options{})

func TestSlotAsRedisComputesIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	// By default the cluster bus uses the server's port plus 10,000. That port may be in use, or above 65,535.
	bus, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(bus.Addr().String())
	require.NoError(t, err)
	require.NoError(t, bus.Close())
	rdb := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"cluster-enabled": "yes",
		"cluster-port": port}}).Client(t)
	keys := []string{
		"", "a", "123456789", "{}", "{}a", "a{}", "a{b}c", "a{b}{c}", "a{b", "a}b{c}", "{{a}}", "a{{b}c}", "}{", "{a}{b}",
		"{user1000}.following",
		"hb:{0.0}:meta", "x{\x00}y", "\xff\xfe", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", strings.Repeat("k", 5000),
	}
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("key:%d{%d", i, i*7919))
	}
	for _, key := range keys {
		want, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		require.EqualValues(t, want, slot(key), "%.40q", key)
	}
}

func TestShardsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 16, 64, 1000, MaxShards} {
		s, err := New(Config{Redis: nowhere, Space: hongbao.Space{Prefix: "hb", Shards: n}})
		require.NoError(t, err)
		require.Equal(t, n, s.Len())
		for i := range n {
			k := s.Shard(i)
			require.Equal(t, i, k.Index())
			at := slot(k.Keys.Meta())
			require.True(t, at >= i*slots/n && at < (i+1)*slots/n, "shard %d of %d has slot %d", i, n, at)
			for _, key := range everyKey(t, k.Keys) {
				require.Equal(t, at, slot(key), key)
				require.True(t, strings.HasPrefix(key, "hb:{"), key)
			}
		}
	}
}

// everyKey returns a key of every method of Keys that names one. The names in the keys contain braces, which must not
// change the hash tag.
func everyKey(t *testing.T, k Keys) (keys []string) {
	t.Helper()
	v := reflect.ValueOf(k)
	for name, m := range v.Methods() {
		var args []reflect.Value
		for at := range m.Type().NumIn() {
			switch kind := m.Type().In(at).Kind(); kind {
			case reflect.String:
				args = append(args, reflect.ValueOf("m{1}"))
			case reflect.Int64:
				args = append(args, reflect.ValueOf(int64(7)))
			default:
				require.Fail(t, "an argument of another kind", "%s: %s", name.Name, kind)
			}
		}
		if m.Type().Out(0).Kind() == reflect.String {
			keys = append(keys, m.Call(args)[0].String())
		}
	}
	require.GreaterOrEqual(t, len(keys), 15)
	return keys
}

// The keys of a deployment must never change: a newer build must find the keys that an older one wrote.
func TestKeysStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Redis: nowhere, Space: hongbao.Space{Prefix: "hb", Shards: 4}})
	require.NoError(t, err)
	k := s.Shard(1).Keys
	require.Equal(t, []string{"hb:{1.3}:meta", "hb:{1.3}:c:rain:stock", "hb:{1.3}:done:kafka:3", "hb:{1.3}:once:sms:m1"},
		[]string{k.Meta(), k.Stock("rain"), k.Done("kafka", 3), k.Once("sms", "m1")})
	require.Equal(t, s.Shard(3).Place("rain"), s.Home("rain"))
}

func TestHomesAreSpread(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Redis: nowhere, Space: hongbao.Space{Prefix: "hb", Shards: 16}})
	require.NoError(t, err)
	count := make([]int, 16)
	for i := range 16_000 {
		count[s.Home(fmt.Sprintf("campaign-%d", i)).Index()]++
	}
	require.Greater(t, slices.Min(count), 800)
	require.Less(t, slices.Max(count), 1200)
}

// The places of a campaign and their order must never change: a newer build must find what an older one has loaded.
func TestPlaces(t *testing.T) {
	t.Parallel()
	indices := func(shards, n int, campaign string) (at []int) {
		s, err := New(Config{Redis: nowhere, Space: hongbao.Space{Prefix: "hb", Shards: shards}})
		require.NoError(t, err)
		places := s.Places(campaign, n)
		require.Equal(t, s.Home(campaign), places[0])
		for _, k := range places {
			at = append(at, k.Index())
		}
		return at
	}
	require.Equal(t, []int{3}, indices(4, 1, "rain"))
	require.Equal(t, []int{3, 1}, indices(4, 2, "rain"))
	require.Equal(t, []int{3, 0, 1}, indices(4, 3, "rain"))
	require.Equal(t, []int{3, 8, 13}, indices(16, 3, "rain"))
	for shards := 1; shards <= 70; shards++ {
		for n := 1; n <= min(shards, hongbao.MaxCampaignShards); n++ {
			at := indices(shards, n, "snow")
			slices.Sort(at)
			require.Len(t, slices.Compact(at), n, "%d of %d shards", n, shards)
		}
	}
}

func TestCheckSpace(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "a:b", "{", "a}", "a b", "a\n", strings.Repeat("a", 33)} {
		require.Error(t, CheckSpace(hongbao.Space{Prefix: prefix, Shards: 1}), "%q", prefix)
	}
	for _, n := range []int{-1, 0, MaxShards + 1} {
		require.Error(t, CheckSpace(hongbao.Space{Prefix: "hb", Shards: n}), n)
	}
}

// The meta key of a shard has no number of shards. The error says that the key belongs to something else.
func TestMarkOfAMetaWithoutShards(t *testing.T) {
	t.Parallel()
	st, err := New(Config{Redis: nowhere, Space: hongbao.Space{Prefix: "hb", Shards: 2}})
	require.NoError(t, err)
	_, _, _, err = st.markOf([]*ShardOwner{nil, {Owner: Owner{Deployment: "d"}}})
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, st.Shard(1).Keys.Meta()+` belongs to something else: its shards is ""`)
}
