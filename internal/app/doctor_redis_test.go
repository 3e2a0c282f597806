package app

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// onCluster returns an App on a new cluster with three shards, each on its own primary.
func onCluster(t *testing.T) (*App, *testkit.RedisCluster) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	cluster := testkit.NewRedisCluster(t, testkit.RedisOptions{})
	cfg := configstest.Config(t, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_DEPLOYMENT_SHARDS=3", "HONGBAO_REDIS_MODE=cluster",
		"HONGBAO_REDIS_ADDRS="+strings.Join(cluster.Addrs(), ","))
	a := opened(t, cfg)
	require.NoError(t, a.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	return a, cluster
}

// Doctor checks each node of a cluster. A finding about one node names that node.
func TestDoctorNamesTheNode(t *testing.T) {
	t.Parallel()
	a, cluster := onCluster(t)
	look := func() *part {
		p := &part{server: "redis"}
		a.examineRedis(t.Context(), p)
		return p
	}
	nodes := [3]string{}
	for i, n := range cluster.Masters {
		nodes[i] = n.Addr
	}
	p := look()
	for _, addr := range nodes {
		require.True(t, p.finds(LevelOK, "node "+addr+": version"), "%v", p.list)
		require.True(t, p.finds(LevelWarning, "node "+addr+": maxmemory is not set"), "%v", p.list)
		require.True(t, slices.ContainsFunc(p.clocks, func(c clock) bool { return c.what == "Redis at "+addr }), p.clocks)
	}
	require.Len(t, p.clocks, 3)
	require.False(t, p.finds(LevelProblem), "%v", p.list)

	cluster.Masters[0].Order(t, "CONFIG SET maxmemory 1")
	cluster.Masters[1].Order(t, "CONFIG SET maxmemory-policy allkeys-lru")
	cluster.Masters[2].Order(t, "CONFIG SET appendonly no")
	for i, n := range cluster.Masters {
		rights := "+@all"
		if i > 0 {
			rights += " -xack"
		}
		n.Order(t, "ACL SETUSER few on >secret ~* "+rights)
	}
	a.Config.Redis.Username, a.Config.Redis.Password = "few", "secret"
	p = look()
	require.True(t, p.finds(LevelWarning, "node "+nodes[0]+": ", "of 1 bytes of memory"), "%v", p.list)
	require.True(t, p.finds(LevelProblem, "node "+nodes[1]+": maxmemory-policy", "allkeys-lru"), "%v", p.list)
	require.True(t, p.finds(LevelProblem, "node "+nodes[2]+": ", "appendonly is no"), "%v", p.list)
	require.True(t, p.finds(LevelWarning, "may not run XACK on", nodes[1], nodes[2]), "%v", p.list)
	require.False(t, p.finds(LevelWarning, "may not run XACK on", nodes[0]), "%v", p.list)
}

// Doctor warns of a node whose clock is wrong. It also warns of two nodes whose clocks differ too much, although each
// is near this machine's clock.
func TestDoctorComparesTheClocksOfNodes(t *testing.T) {
	t.Parallel()
	a := &App{Config: configstest.Config(t, "HONGBAO_DEPLOYMENT_ID=test")}
	redis, now := &part{}, time.Now()
	for addr, ahead := range map[string]time.Duration{
		"a:1": -800 * time.Millisecond, "b:1": 700 * time.Millisecond, "c:1": 0,
	} {
		a.examineNode(redis, &store.Node{Server: store.Server{Addr: addr, RunID: "r"}, Clock: now.Add(ahead), Asked: now,
			Answered: now})
	}
	require.False(t, redis.finds(LevelWarning, "clock"), "each clock is near this machine's: %v", redis.list)
	database := &part{}
	database.clock("the database", now, now, now)
	redis.compareClocks(database)
	require.True(t, redis.finds(LevelWarning, "the clock of Redis at b:1 is 1.5s ahead of the clock of Redis at a:1"),
		"%v", redis.list)
	a.examineNode(redis, &store.Node{Server: store.Server{Addr: "d:1", RunID: "r"}, Clock: now.Add(-time.Hour),
		Asked: now, Answered: now})
	require.True(t, redis.finds(LevelWarning, "the clocks of this machine and of Redis at d:1 are 1h0m0s apart"),
		"%v", redis.list)

	none := &part{}
	a.examineNode(none, &store.Node{Server: store.Server{RunID: "r"}}) // the user may not read the clock
	none.compareClocks(&part{})
	require.False(t, none.finds(LevelWarning, "clock"), "%v", none.list)
}

// Doctor compares maxmemory and the used memory with the machine's memory, too.
func TestDoctorJudgesMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		used, most, machine int64
		says                []string
	}{
		{1, 6, 8, nil},
		{1, 64, 0, nil}, // the size of the machine's memory is unknown
		{5, 6, 8, []string{"5368709120 of 6442450944 bytes of memory are used"}},
		{1, 7, 8, []string{"maxmemory is 7168 MiB", "Set maxmemory to 6144 MiB at most"}},
		{1, 64, 8, []string{"maxmemory is 64 GiB", "Set maxmemory to 6144 MiB at most"}},
		{7, 64, 8, []string{"maxmemory is 64 GiB", "7516192768 of 8589934592 bytes of memory are used"}},
		{1, 0, 8, []string{"maxmemory is not set", "Set maxmemory to 6144 MiB at most"}},
		{7, 0, 8, []string{"maxmemory is not set", "7516192768 of 8589934592 bytes of memory are used"}},
		{1, 0, 0, []string{"maxmemory is not set", "below what the machine has"}},
	} {
		p := &part{}
		p.memory(&store.Server{Memory: c.used * gib, MaxMemory: c.most * gib, MachineMemory: c.machine * gib})
		require.Equal(t, len(c.says) == 0, len(p.list) == 0, "%v: %v", c, p.list)
		for _, text := range c.says {
			require.True(t, p.finds(LevelWarning, text), "%v: %v", c, p.list)
		}
	}
}

// The nodes of a shard are down or hang. Doctor still reports findings about the other shards, and reports nothing as
// ok that it could not read.
func TestDoctorGoesOnAfterAShardThatIsAway(t *testing.T) {
	t.Parallel()
	for name, takeDown := range map[string]func(*testkit.RedisServer) error{
		"down": (*testkit.RedisServer).Kill, "hung": (*testkit.RedisServer).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doctorGoesOn(t, takeDown)
		})
	}
}

func doctorGoesOn(t *testing.T, takeDown func(*testkit.RedisServer) error) {
	a, cluster := onCluster(t)
	rdb := cluster.Client(t, nil)
	require.NoError(t, rdb.HSet(t.Context(), a.store.Shard(2).Keys.Meta(), "frozen", "1").Err())
	p := &part{}
	a.examineRedis(t.Context(), p)
	require.True(t, p.finds(LevelOK, "may run every command"), "%v", p.list)
	require.True(t, p.finds(LevelWarning, "sink balance is missing on 2 of 3 shards"), "%v", p.list)
	gone, err := rdb.MasterForKey(t.Context(), a.store.Shard(0).Keys.Meta())
	require.NoError(t, err)
	i := slices.IndexFunc(cluster.Masters[:], func(n *testkit.RedisServer) bool { return n.Addr == gone.Options().Addr })
	require.NoError(t, takeDown(cluster.Replicas[i]))
	require.NoError(t, takeDown(cluster.Masters[i]))

	ctx, cancel := context.WithTimeout(t.Context(), doctorTime)
	defer cancel()
	p = &part{}
	a.examineRedis(ctx, p)
	require.True(t, p.finds(LevelProblem, "1 of 3 shards can't be read: node "+cluster.Masters[i].Addr), "%v", p.list)
	require.True(t, p.finds(LevelProblem, "shard 2 is frozen"), "%v", p.list)
	require.True(t, p.finds(LevelWarning, "sink balance is missing on 1 of 3 shards"), "%v", p.list)
	require.False(t, p.finds(LevelOK, "may run every command"), "%v", p.list)
	for _, n := range cluster.Masters {
		version := p.finds(LevelOK, "node "+n.Addr+": version")
		require.Equal(t, n.Addr != cluster.Masters[i].Addr, version, "%s: %v", n.Addr, p.list)
	}
}
