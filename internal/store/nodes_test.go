package store_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// changing returns a client of a cluster with one node. next changes the node's address, so that go-redis creates a
// new node client. All addresses lead to the same server.
func changing(t *testing.T, server *redis.Options) (rdb *redis.ClusterClient, next func()) {
	t.Helper()
	var topology atomic.Int64
	addr := func() string { return fmt.Sprintf("node-%d:6379", topology.Load()) }
	rdb = redis.NewClusterClient(&redis.ClusterOptions{
		Username: server.Username, Password: server.Password,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr()}}}}, nil
		},
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Addr)
		},
	})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb, func() {
		topology.Add(1)
		testkit.Eventually(t, 30*time.Second, func() bool {
			rdb.ReloadState(t.Context())
			node, err := rdb.MasterForKey(t.Context(), "key")
			return err == nil && node.Options().Addr == addr()
		}, "the client uses the new topology")
	}
}

// The topology of a cluster changes several times. The process keeps one state for a shard. What it reads through
// node clients raises the seq that it has seen.
func TestStateDoesNotGrowWithNodeClients(t *testing.T) {
	t.Parallel()
	plain, st, places := over(t)
	grabOn(t, places[0], "u1", 2)
	last, err := places[0].LastSeq(t.Context())
	require.NoError(t, err)
	rdb, next := changing(t, plain.Options())
	for range 5 {
		next()
		_, err := st.Over(rdb).Campaign("rain").UserReceipts(t.Context(), "u1")
		require.NoError(t, err)
		require.Equal(t, 2, store.Stores(st), "one store for each of the test's two clients")
	}
	require.Equal(t, last, store.Seen(st.Over(rdb).Shard(places[0].Index())).Seq)
}

// Forget removes the process's state about a client, so that closed clients do not leak memory.
func TestStoreIsForgotten(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	space := hongbao.Space{Prefix: testkit.Prefix(t), Shards: 3}
	st, err := store.Of(rdb, space)
	require.NoError(t, err)
	require.Equal(t, 1, store.Stores(st))
	st.Forget()
	require.Zero(t, store.Stores(st))
	again, err := store.Of(rdb, space)
	require.NoError(t, err)
	require.NotSame(t, st, again)
}
