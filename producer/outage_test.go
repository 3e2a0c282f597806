package producer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	const callTime, queueTime = 6 * time.Second, 2 * time.Second
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 2000))
	calls, rdb := b.counting(t, "evalsha")
	calls.with = b.k.Keys.Stock("rain")
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.CallTimeout, c.QueueTimeout = b.over(rdb), callTime, queueTime
	})
	_, err := p.Grab(t.Context(), grab("u", "r"))
	require.NoError(t, err)
	require.NoError(t, b.server.Stop())
	errs, longest := storm(p, "a", 1500) // 12 calls of 128 grabs: two at once take 36 s
	require.Less(t, longest, queueTime+callTime+10*time.Second)
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
	require.Less(t, time.Since(start), queueTime/2, "it is refused at once")
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
	proxy, behind := b.through(t, 3)
	rdb := b.server.Client(t, func(o *redis.Options) { o.MaxRetries = 3 })
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	won, err := p.Grab(t.Context(), grab("winner", "r"))
	require.NoError(t, err)
	require.NoError(t, b.admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err())

	// While the first call is in flight, the next three grabs queue for one call: only one of them needs memory.
	calls := make(chan producer.Call, 100)
	slow := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.Called = b.over(behind), func(call producer.Call) { calls <- call }
	})
	_, err = slow.Grab(t.Context(), grab("first", "r"))
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "this try did nothing")
	require.ErrorContains(t, (<-calls).Err, "OOM", "the call is counted as failed")
	proxy.Delay(200 * time.Millisecond)
	type result struct {
		hongbao.Answer
		err error
	}
	results := map[string]chan result{}
	for _, of := range []string{"first r", "winner r", "winner other", "u r"} {
		user, request, _ := strings.Cut(of, " ")
		results[of] = make(chan result, 1)
		go func() {
			a, err := slow.Grab(context.Background(), grab(user, request))
			results[of] <- result{a, err}
		}()
		if of == "first r" {
			testkit.Eventually(t, 20*time.Second, func() bool { return proxy.Fired().Delayed > 0 }, "a call is in flight")
		}
	}
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf((<-results["first r"]).err))
	again := <-results["winner r"]
	require.NoError(t, again.err)
	require.Equal(t, hongbao.OutcomeGranted, again.Outcome)
	require.Equal(t, won.Receipts, again.Receipts)
	again = <-results["winner other"]
	require.NoError(t, again.err)
	require.Equal(t, hongbao.OutcomeAlreadyGranted, again.Outcome)
	require.Equal(t, won.Receipts, again.Receipts)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf((<-results["u r"]).err))
	<-calls
	require.Equal(t, 3, (<-calls).Grabs, "the three were in one call")
	proxy.Delay(0)
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

// The reply to a grant is lost, and then the shard is frozen. The grab is undecided, or fails later in an outage. Its
// answer says that the outcome is unknown, because the first try was granted.
func TestUnknownStaysUnknownWhileFrozen(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"no patience": 0, "then an outage": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
			b.load(t, spec("rain", 10))
			proxy, rdb := b.through(t, -1)
			var frozen, down atomic.Bool
			var freeze sync.Once // concurrent commands wait until the shard is frozen
			rdb.AddHook(before(func() {
				if proxy.Fired().Swallowed == 1 {
					freeze.Do(func() {
						b.admin.HSet(context.Background(), b.k.Keys.Meta(), "frozen", "1")
						frozen.Store(true)
					})
				}
			}))
			p := b.producer(t, func(c *producer.Config) {
				c.Deployment, c.UndecidedTimeout, c.QueueTimeout, c.CallTimeout = b.over(rdb), patience, 10*time.Second, hopeless
				c.Called = func(call producer.Call) {
					if frozen.Load() && patience > 0 && down.CompareAndSwap(false, true) {
						_ = proxy.Close()
					}
				}
			})
			_, err := p.Grab(t.Context(), grab("u0", "r0"))
			require.NoError(t, err)
			proxy.SwallowAnswers(1, isScript)
			a, err := p.Grab(t.Context(), grab("u1", "r1"))
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%s %v", a.Outcome, err)
			require.Empty(t, a.Outcome)
			require.Len(t, b.grants(t)["u1"], 1, "the first try was granted")
			require.True(t, frozen.Load())
			require.Equal(t, patience > 0, down.Load())
		})
	}
}

// Each call is slow, and its answer is undecided. No call begins after the time for the queue and the undecided outcome.
func TestUndecidedGrabsEndInTime(t *testing.T) {
	t.Parallel()
	const queueTime, undecidedTime, delay = 200 * time.Millisecond, time.Second, 600 * time.Millisecond
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 10))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.QueueTimeout, c.UndecidedTimeout, c.MaxBacklog = b.over(rdb), queueTime, undecidedTime, 1
	})
	for i := range 2 {
		_, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r"))
		require.NoError(t, err)
	}
	calls := &counted{what: "evalsha", with: b.k.Keys.Stock("rain")}
	rdb.AddHook(calls)
	proxy.Delay(delay)
	a, err := p.Grab(t.Context(), grab("late", "r"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeBusy, a.Outcome)
	require.LessOrEqual(t, calls.n.Load(), int64(2), "a third call would begin after both times")
	require.Positive(t, proxy.Fired().Delayed)
}
