package configs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A blocking read waits longer than redis.read_timeout, and no entry arrives. With ReadsClient it returns no entries
// and no error.
func TestBlockingReadOnRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	c := (&input{args: []string{
		"--redis.addrs=" + testkit.Redis(t).Addr, "--deployment.key_prefix=" + testkit.Prefix(t),
		"--redis.read_timeout=900ms", "--consumer.block=1500ms",
	}}).must(t)
	rdb, reads := c.RedisClient(), c.ReadsClient()
	t.Cleanup(func() {
		require.NoError(t, rdb.Close())
		require.NoError(t, reads.Close())
	})
	name, err := rdb.ClientGetName(t.Context()).Result()
	require.NoError(t, err)
	require.Equal(t, "hongbao", name)
	st, err := store.New(store.Config{Redis: rdb, Space: c.Space()})
	require.NoError(t, err)
	require.NoError(t, st.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	_, err = st.Shard(0).Group(SinkBalance).Create(t.Context())
	require.NoError(t, err)

	start := time.Now()
	entries, err := st.Over(reads).Shard(0).Group(SinkBalance).ReadNew(t.Context(), "w1", 1, c.Consumer.Block)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.GreaterOrEqual(t, time.Since(start), c.Consumer.Block)
	_, err = st.Shard(0).Group(SinkBalance).ReadNew(t.Context(), "w1", 1, c.Consumer.Block)
	require.Error(t, err, "the client for short commands times out")
}
