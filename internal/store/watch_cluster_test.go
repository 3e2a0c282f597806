package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// One node of a cluster hangs. The watch continues to check the other nodes.
func TestWatchBesideAHungNode(t *testing.T) {
	t.Parallel()
	cluster := testkit.NewRedisCluster(t, testkit.RedisOptions{})
	rdb := cluster.Client(t, nil)
	st := storetest.InitializedOn(t, rdb, 8)
	require.NoError(t, cluster.Replicas[0].Stop()) // prevents a failover
	require.NoError(t, cluster.Masters[0].Stop())
	looks := &watched{}
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(looks) })
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		node.AddHook(looks)
		return nil
	}))
	w := &store.Watch{Store: st, Every: 10 * time.Millisecond}
	testkit.Go(t, w.Run)
	testkit.Eventually(t, 15*time.Second, func() bool { return looks.checks.Load() > 40 }, "the others are checked")
}
