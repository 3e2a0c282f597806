package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// FewReplicas fails if min-replicas-to-write is below the number of replicas that durability class replica waits for.
func TestFewReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		connected, min, wanted int
		few                    bool
	}{
		{0, 0, 0, false}, {1, 0, 0, true}, {1, 1, 0, false}, {2, 1, 0, true}, {2, 1, 1, false}, {1, 1, 2, true},
		{2, 2, 0, false}, {2, -1, 0, false}, {0, 0, 1, true},
	} {
		err := (&store.Server{Replicas: c.connected, MinReplicas: c.min}).FewReplicas(c.wanted)
		require.Equal(t, c.few, err != nil, "%+v: %v", c, err)
		if err != nil && c.connected == 0 {
			require.ErrorContains(t, err, "connect a replica first", "the setting would stop all writes")
		}
	}
}

// A replica connects and is then killed. The watch stores the highest number of replicas, which does not fall.
func TestWatchCountsReplicas(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"min-replicas-to-write": "0"}})
	b := setupOn(t, server.Client(t))
	w := b.watch(t)
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: server})
	counted := func() bool { return b.rdb.HGet(t.Context(), b.k.Keys.Meta(), "replicas").Val() == "1" }
	testkit.Eventually(t, 20*time.Second, counted, "the replica is counted")
	servers, err := store.Inspect(t.Context(), b.rdb)
	require.NoError(t, err)
	require.ErrorContains(t, servers[0].FewReplicas(0), "min-replicas-to-write is 0")
	require.NoError(t, replica.Kill())
	w.sees(t)
	w.sees(t)
	require.True(t, counted())
	testkit.Eventually(t, 20*time.Second, func() bool {
		states, err := b.store.ServerStates(t.Context())
		return err == nil && states[0].Server.Replicas == 0 && states[0].RequiredReplicas == 1
	}, "the replica is still required")
}

// The state of a server has its address, or a plain word under sentinels, where a failover changes the address.
func TestAddressOfAServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	sentinels, single := testkit.NewRedisSentinels(t, testkit.RedisOptions{}), testkit.Redis(t)
	for want, rdb := range map[string]*redis.Client{"primary": sentinels.Client(t, nil), single.Addr: single.Client(t)} {
		states, err := setupOn(t, rdb).store.ServerStates(t.Context())
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.Equal(t, want, states[0].Address)
	}
}
