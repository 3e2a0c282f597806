package producer_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/shards/shardstest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// The primary is killed under load and a sentinel promotes its replica: grabs go on through the same producer, what a
// user was told stands, and the same request id never gets a second packet.
func TestSentinelFailoverUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	primary := testkit.NewRedis(t, testkit.RedisOptions{})
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: primary})
	sentinel := testkit.NewRedis(t, testkit.RedisOptions{Watches: primary})
	says := func(r *testkit.RedisServer, part string, question ...any) {
		t.Helper()
		c := r.Client(t)
		testkit.Eventually(t, 30*time.Second, func() bool {
			text, err := c.Do(t.Context(), question...).Text()
			return err == nil && strings.Contains(text, part)
		}, "%s says %s", r.Addr, part)
	}
	says(replica, "master_link_status:up", "INFO", "replication")
	says(sentinel, "status=ok,address="+primary.Addr+",slaves=1", "INFO", "sentinel")

	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: testkit.SentinelName, SentinelAddrs: []string{sentinel.Addr}, ContextTimeoutEnabled: true,
		DialerRetries: 1,
		DialTimeout:   time.Second, ReadTimeout: time.Second, DisableIdentity: true,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	space, err := shards.NewLayout(hongbao.Space{Prefix: testkit.Prefix(t), Shards: 1})
	require.NoError(t, err)
	require.NoError(t, shards.Found(t.Context(), client, space, shards.FoundCall{Deployment: "test"}))
	b := &bundle{admin: client, space: space, k: space.Shard(0)}
	c := spec("rain", 4000)
	c.Durability = hongbao.DurabilityReplica
	b.load(t, campaign.Complete(c))
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = client, space.Space, "test"
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })

	shardstest.KeepOpen(t, client, space)
	run := &crowd{p: p, got: map[string][]int64{}, campaign: "rain"}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { run.run(ctx, 0, 3000, 64) })
	testkit.Eventually(t, 20*time.Second, func() bool { return run.size() > 500 }, "grants pour in")
	require.NoError(t, primary.Kill())
	before := run.size()
	require.Less(t, before, 3000, "the fault fired under load")
	says(replica, "role:master", "INFO", "replication")
	require.NoError(t, primary.Restart(), "the sentinel makes it a replica, which the class asks for")
	all.Wait()
	require.NoError(t, ctx.Err(), "all have their answers in time")
	run.run(ctx, 0, 3000, 64) // all once more, by the same request ids
	run.oneEach(t, b, 3000)
	t.Logf("%d of 3000 granted before the kill, %d errors on the way", before, run.failed)
}
