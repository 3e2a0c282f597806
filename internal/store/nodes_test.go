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

// The topology of a cluster changes several times. What the process reads through the clients of nodes raises the seq
// that it has seen.
func TestNodeClientsShareTheState(t *testing.T) {
	t.Parallel()
	plain, st, places := over(t)
	grabOn(t, places[0].Shard, "u1", 2)
	last, err := places[0].LastSeq(t.Context())
	require.NoError(t, err)
	rdb, next := changing(t, plain.Options())
	changed := st.Over(rdb)
	for range 5 {
		next()
		_, err := changed.Campaign("rain").UserReceipts(t.Context(), "u1")
		require.NoError(t, err)
	}
	require.Equal(t, last, store.Seen(changed.Shard(places[0].Index())).Seq)
}
