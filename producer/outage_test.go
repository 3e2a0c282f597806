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
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// storm makes n grabs of different users at once, and returns their errors and the longest time that one took.
func storm(p *producer.Producer, name string, n int) (errs []error, longest time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			start := time.Now()
			_, err := p.Grab(context.Background(), grab(fmt.Sprintf("%s%d", name, i), "r"))
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			errs, longest = append(errs, err), max(longest, took)
		})
	}
	wg.Wait()
	return errs, longest
}

// Redis is silent. Each of many grabs ends within the time for the queue and one call. The error of a grab that was
// never sent says that nothing happened. Once a call has failed, further grabs are refused at once, but for one probe.
// After the outage each grab that was refused is decided.
func TestGrabsEndWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	const callTime, queueTime = time.Second, 500 * time.Millisecond
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 2000))
	calls, rdb := b.counting(t, "evalsha")
	calls.with = b.k.Keys.Stock("rain")
	p := b.producer(t, func(c *producer.Config) { c.Redis, c.CallTimeout, c.QueueTimeout = rdb, callTime, queueTime })
	_, err := p.Grab(t.Context(), grab("u", "r"))
	require.NoError(t, err)
	require.NoError(t, b.server.Stop())
	errs, longest := storm(p, "a", 1500) // 12 calls of 128 grabs: two at once take 6 s
	require.Less(t, longest, queueTime+callTime+time.Second)
	refused := 0
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err), "%v", err)
		if hongbao.ClassOf(err) == hongbao.ClassTransient {
			require.ErrorContains(t, err, "this try did nothing")
			require.ErrorContains(t, err, "repeat it with the same request id")
			refused++
		}
	}
	require.GreaterOrEqual(t, refused, 1500-2*128)

	before := calls.n.Load()
	probe := make(chan error, 1)
	go func() { _, err := p.Grab(context.Background(), grab("probe", "r")); probe <- err }()
	testkit.Eventually(t, 20*time.Second, func() bool { return calls.n.Load() > before }, "the probe is in flight")
	start := time.Now()
	_, err = p.Grab(t.Context(), grab("late", "r"))
	require.Less(t, time.Since(start), callTime/5, "it is refused at once")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, "this try did nothing")
	require.Error(t, <-probe)
	require.NoError(t, b.server.Cont())
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, err := p.Grab(t.Context(), grab("late", "r"))
		return err == nil
	}, "grabs work again")
	for i := range errs {
		a, err := p.Grab(t.Context(), grab(fmt.Sprintf("a%d", i), "r"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	}
	b.grants(t) // each packet once
}

// Redis is full. A grab is refused within the time of two calls, with the certainty that nothing happened, whatever the
// client's number of retries. A user who has the packet gets the receipt.
func TestGrabsEndWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 100))
	p := b.producer(t, func(c *producer.Config) { c.Redis = b.server.Client(t, func(o *redis.Options) { o.MaxRetries = 3 }) })
	won, err := p.Grab(t.Context(), grab("winner", "r"))
	require.NoError(t, err)
	require.NoError(t, b.admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err())

	start := time.Now()
	errs := make(chan error, 1) // in one call with the others, if they are fast enough
	go func() { _, err := p.Grab(t.Context(), grab("u", "r")); errs <- err }()
	again, err := p.Grab(t.Context(), grab("winner", "r"))
	require.NoError(t, err)
	require.Equal(t, won.Receipts, again.Receipts)
	again, err = p.Grab(t.Context(), grab("winner", "other"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeAlreadyGranted, again.Outcome)
	err = <-errs
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "this try did nothing")
	require.Less(t, time.Since(start), 2*time.Second)
	failed, longest := storm(p, "v", 300)
	require.Less(t, longest, 2*time.Second)
	for _, err := range failed {
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	}
	require.Len(t, b.grants(t), 1)
	require.NoError(t, b.admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = p.Grab(t.Context(), grab("u", "r"))
	require.NoError(t, err)
}
