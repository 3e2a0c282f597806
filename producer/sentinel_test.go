package producer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The primary is killed under load, and the sentinels promote a replica. The same producer continues to work. No
// granted packet is lost, and no request id gets a second packet.
func TestSentinelFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	set := testkit.NewRedisSentinels(t, testkit.RedisOptions{})
	client := set.Client(t, func(o *redis.FailoverOptions) {
		o.DialTimeout, o.ReadTimeout = time.Second, time.Second
	})
	st := storetest.InitializedOn(t, client, 1)
	b := &bundle{admin: client, store: st, k: st.Shard(0)}
	c := spec("rain", 4000)
	c.Durability = hongbao.DurabilityReplica
	b.load(t, c)
	p := b.producer(t, nil)

	storetest.KeepOpen(t, st)
	run := &crowd{p: p, got: map[string][]int64{}, campaign: "rain"}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { run.run(ctx, 0, 3000, 64) })
	testkit.Eventually(t, 20*time.Second, func() bool { return run.size() > 500 }, "grants pour in")
	require.NoError(t, set.Primary.Kill())
	before := run.size()
	require.Less(t, before, 3000, "the fault fired under load")
	set.AwaitPromotion(t)
	all.Wait()
	require.NoError(t, ctx.Err(), "all users have their answers in time")
	run.run(ctx, 0, 3000, 64) // every user repeats their grab
	run.oneEach(t, b, 3000)
	t.Logf("%d of 3000 granted before the kill, %d errors", before, run.failed)
}
