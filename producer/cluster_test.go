package producer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// crowd simulates users who each retry one request id until they have a final answer.
type crowd struct {
	p        *producer.Producer
	campaign string
	mu       sync.Mutex
	// got has, by request id, the packets from all its answers.
	got    map[string][]int64
	failed int // number of errors
}

// run lets n users grab, atOnce of them concurrently.
func (c *crowd) run(ctx context.Context, first, n, atOnce int) {
	users := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range users {
				c.one(ctx, fmt.Sprintf("u%05d", i))
			}
		})
	}
	for i := first; i < first+n; i++ {
		users <- i
	}
	close(users)
	wg.Wait()
}

func (c *crowd) one(ctx context.Context, user string) {
	for ctx.Err() == nil {
		a, err := c.p.Grab(ctx, &hongbao.Grab{Campaign: c.campaign, User: user, RequestID: "r-" + user})
		c.mu.Lock()
		if err != nil {
			c.failed++
		} else if a.Outcome == hongbao.OutcomeGranted {
			c.got["r-"+user] = append(c.got["r-"+user], a.Receipts[0].Packet)
		}
		final := err == nil && a.Outcome == hongbao.OutcomeGranted
		c.mu.Unlock()
		if final {
			return
		}
	}
}

func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// oneEach fails the test unless each of the n request ids has exactly one packet, the same in all its answers and in
// the stream, and all packets differ.
func (c *crowd) oneEach(t *testing.T, b *bundle, n int) {
	t.Helper()
	require.Len(t, c.got, n)
	stream := b.grants(t) // also checks that no seq is missing and no packet is there twice
	require.Len(t, stream, n)
	for request, packets := range c.got {
		grants := stream[request[len("r-"):]]
		require.Len(t, grants, 1, request)
		for _, p := range packets {
			require.Equal(t, grants[0].Packet, p, "request %s got another packet", request)
		}
	}
}

// The master of the campaign's shard is killed under load, and its replica is promoted. The same producer continues to
// work. The durability class is replica, so no granted packet is lost, and no request id gets a second packet.
func TestClusterFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := testkit.NewRedisCluster(t, testkit.RedisOptions{})
	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
	st := storetest.InitializedOn(t, client, 3)
	b := &bundle{admin: client, store: st, k: st.Home("rain").Shard}
	c := spec("rain", 4000)
	for i := 0; b.k.Index() != 0; i++ { // look for a campaign id on shard 0, which is on the first master
		c.ID = fmt.Sprintf("rain-%d", i)
		b.k = st.Home(c.ID).Shard
	}
	c.Durability = hongbao.DurabilityReplica
	b.load(t, c)
	node, err := client.MasterForKey(t.Context(), b.k.Keys.Meta())
	require.NoError(t, err)
	require.Equal(t, cluster.Masters[0].Addr, node.Options().Addr)

	p := b.producer(t, nil)
	storetest.KeepOpen(t, st)
	run := &crowd{p: p, got: map[string][]int64{}, campaign: c.ID}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { run.run(ctx, 0, 3000, 64) })
	testkit.Eventually(t, 20*time.Second, func() bool { return run.size() > 500 }, "grants pour in")
	require.NoError(t, cluster.Masters[0].Kill())
	before := run.size()
	require.Less(t, before, 3000, "the fault fired under load")
	cluster.AwaitPromotion(t, 0)
	require.NoError(t, cluster.Masters[0].Restart(), "the old master returns as the replica that class replica needs")
	all.Wait()
	require.NoError(t, ctx.Err(), "all users have their answers in time")
	node, err = client.MasterForKey(t.Context(), b.k.Keys.Meta())
	require.NoError(t, err)
	require.Equal(t, cluster.Replicas[0].Addr, node.Options().Addr, "the promoted replica serves")
	run.run(ctx, 0, 3000, 64) // every user repeats their grab
	run.oneEach(t, b, 3000)
	t.Logf("%d of 3000 granted before the kill, %d errors", before, run.failed)
}
