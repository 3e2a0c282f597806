package producer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// withDevice loads a campaign with one packet per user and device.
func (b *bundle) withDevice(t *testing.T, packets int64) {
	t.Helper()
	c := spec("rain", packets)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerCampaign, Max: 1})
	b.load(t, c)
}

// A caller that has left changes its map of facts, while the producer still retries the call. The retry uses the old
// facts.
func TestFactsAreTheCallersAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withDevice(t, 10)
	var down atomic.Bool
	var refused atomic.Int64
	rdb := b.server.Client(t, func(o *redis.Options) {
		o.PoolSize, o.ConnMaxIdleTime = 1, time.Nanosecond // each call dials
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down.Load() {
				refused.Add(1)
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	facts := map[string]string{"device": "d0"}
	_, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: "rain", User: "u0", Facts: facts})
	require.NoError(t, err)

	down.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	mine := map[string]string{"device": "d1"}
	go func() {
		_, err := p.Grab(ctx, &hongbao.Grab{Campaign: "rain", User: "u1", RequestID: "r1", Facts: mine})
		left <- err
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return refused.Load() > 0 }, "the call is under way")
	cancel()
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(<-left))
	mine["device"] = "d0" // the race detector would report a shared map
	down.Store(false)
	testkit.Eventually(t, 30*time.Second, func() bool { return len(b.grants(t)["u1"]) == 1 },
		"the call uses device d1, which has no packet yet")
}

func TestMissingCodeFailsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.coupons(t, 100, 1)
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight = b.over(rdb), 1 })
	_, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	require.NoError(t, b.admin.HDel(t.Context(), b.k.Keys.Codes("rain"), "20").Err())
	proxy.Delay(100 * time.Millisecond) // so that the other grabs gather during the first call
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", 1+i), "r"))
			switch {
			case err == nil && a.Receipts[0].Code == fmt.Sprint("C", a.Receipts[0].Packet):
			case hongbao.ClassOf(err) == hongbao.ClassUnknown && hongbao.IsOutage(err):
				failed.Add(1)
			default:
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, failed.Load())
	for _, e := range b.entries(t) {
		if e.Grants[0].Packet <= 20 && e.Grants[len(e.Grants)-1].Packet >= 20 {
			require.Greater(t, len(e.Grants), 1, "other grabs were in the same call")
		}
	}
}

// Callers leave while their grabs wait in the queue. Their grabs fail with "nothing happened", and their places in the
// queue are free at once.
func TestCallersLeaveTheQueue(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 1000))
	scripts, rdb := b.counting(t, "evalsha")
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight, c.MaxWaiting = b.over(rdb), 1, 50 })
	_, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	require.NoError(t, b.server.Stop())
	before := scripts.n.Load()
	first := make(chan error, 1)
	go func() {
		_, err := p.Grab(t.Context(), grab("first", "r"))
		first <- err
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return scripts.n.Load() > before }, "the first call is in flight")
	for round := range 3 { // each round fills the queue
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				_, err := p.Grab(ctx, grab(fmt.Sprintf("left%d-%d", round, i), "r"))
				if hongbao.ClassOf(err) != hongbao.ClassTransient || ctx.Err() == nil {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		cancel()
	}
	require.NoError(t, b.server.Cont())
	require.NoError(t, <-first)
	_, err = p.Grab(t.Context(), grab("last", "r"))
	require.NoError(t, err)
	require.Len(t, b.grants(t), 3, "u0, first and last")
}

// If users may get many packets, a call takes fewer grabs, because the receipts that a script reads are limited.
func TestCallsOfManyPacketsAreSmall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 1000)
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 100}}
	b.load(t, c)
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight = b.over(rdb), 1 })
	_, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	proxy.Delay(50 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if _, err := p.Grab(t.Context(), grab(fmt.Sprint("u", 1+i), "r")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	largest := 0
	for _, e := range b.entries(t) {
		largest = max(largest, len(e.Grants))
	}
	require.Equal(t, 40, largest)
}

// While a shard is busy, the producer calls it now and then for all waiting grabs. Each caller gets busy after
// UndecidedTimeout. A caller that leaves is answered at once, and its grab is not sent again.
func TestBusyShardIsAskedForAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(inFlight), func(t *testing.T) {
			t.Parallel()
			busyShard(t, inFlight)
		})
	}
}

func busyShard(t *testing.T, inFlight int) {
	t.Helper()
	b := setup(t)
	b.load(t, spec("rain", 1000))
	scripts, rdb := b.counting(t, "evalsha")
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.MaxBacklog, c.UndecidedTimeout, c.InFlight = b.over(rdb), 1, 2*time.Second, inFlight
	})
	first, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	before, began := scripts.n.Load(), time.Now()
	var answered atomic.Int64
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", 1+i), "r"))
			answered.Add(1)
			if err != nil || a.Outcome != hongbao.OutcomeBusy {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return scripts.n.Load() >= before+5 }, "each grab was sent once")
	a, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	require.Less(t, answered.Load(), int64(500), "the others wait")
	require.Equal(t, first.Receipts, a.Receipts, "a repeated grab gets its receipt, however many grabs wait")
	wg.Wait()
	require.LessOrEqual(t, scripts.n.Load()-before, 8+4*int64(inFlight-1)+int64(time.Since(began)/(20*time.Millisecond)),
		"after the first calls with all grabs, there is at most one call every 20 ms")
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	a, err = p.Grab(ctx, grab("left", "r"))
	require.True(t, err != nil || a.Outcome == hongbao.OutcomeBusy, "%+v, %v", a, err)
	require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), "finished", 1).Err())
	a, err = p.Grab(t.Context(), grab("last", "r"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.Len(t, b.grants(t), 2, "u0 and last")
}

// Some callers leave while others wait. After the last call the producer remembers none of them, so the campaign is
// idle and can be removed.
func TestWhoLeftKeepsNoCampaign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1000))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight = b.over(rdb), 1 })
	_, err := p.Grab(t.Context(), grab("u0", "r"))
	require.NoError(t, err)
	proxy.Delay(500 * time.Millisecond)
	var wg sync.WaitGroup
	grabs := func(ctx context.Context, from, n int) {
		before := p.Waiting("rain")
		for i := range n {
			wg.Go(func() {
				_, err := p.Grab(ctx, grab(fmt.Sprint("u", from+i), "r"))
				if err != nil && ctx.Err() == nil {
					t.Errorf("u%d: %v", from+i, err)
				}
			})
		}
		testkit.Eventually(t, 30*time.Second, func() bool { return p.Waiting("rain") == before+n }, "they wait")
	}
	wg.Go(func() {
		if _, err := p.Grab(t.Context(), grab("first", "r")); err != nil {
			t.Errorf("first: %v", err)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() bool { return p.Calls("rain") == 1 }, "the first call is in flight")
	grabs(t.Context(), 1, 4)
	ctx, leave := context.WithCancel(t.Context())
	grabs(ctx, 5, 3)
	leave()
	wg.Wait()
	testkit.Eventually(t, 30*time.Second, func() bool {
		p.Sweep(time.Now().Add(time.Hour))
		return p.Lanes() == 0
	}, "the campaign is removed")
}

// While a call is in flight, a few waiting grabs wait for the next call, but many waiting grabs start a second call at
// once.
func TestFewGrabsShareTheNextCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1000))
	for _, users := range []int{7, 100} {
		proxy, rdb := b.through(t, -1)
		p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
		before := len(b.entries(t))
		grabbed := func(name string) {
			a, err := p.Grab(t.Context(), grab(fmt.Sprint(name, users), "r"))
			if err != nil || a.Outcome != hongbao.OutcomeGranted {
				t.Errorf("%+v, %v", a, err)
			}
		}
		grabbed("ready")
		proxy.Delay(time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { grabbed("first") })
		testkit.Eventually(t, 30*time.Second, func() bool { return len(b.entries(t)) == before+2 }, "the first call is in flight")
		for i := range users {
			wg.Go(func() { grabbed(fmt.Sprint("u", i, "-")) })
		}
		if users == 100 {
			testkit.Eventually(t, 30*time.Second, func() bool { return len(b.entries(t)) >= before+3 }, "a second call is in flight")
			require.GreaterOrEqual(t, len(b.entries(t)[before+2].Grants), 8)
		}
		wg.Wait()
		last := b.entries(t)[before+2:]
		if users == 7 {
			require.Len(t, last, 1)
			require.Len(t, last[0].Grants, 7)
		}
	}
}

// A call leaves grabs for a further call only if that call is allowed and pays off.
func TestShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ waiting, calls, most, want int }{
		{0, 0, 2, 0}, {1, 0, 2, 1}, {15, 0, 2, 15}, {16, 0, 2, 8}, {20, 0, 2, 10}, {21, 0, 2, 11}, {20, 1, 2, 20}, {20, 0, 1, 20},
		{512, 0, 2, 256}, {31, 1, 8, 31}, {32, 1, 8, 16},
	} {
		require.Equal(t, c.want, producer.Share(c.waiting, c.calls, c.most), "%+v", c)
	}
	for most := range 17 {
		for waiting := range 600 {
			left, calls := waiting, 0
			for left > 0 {
				left -= producer.Share(left, calls, most)
				calls++
				require.True(t, left == 0 || calls < most && left >= calls*8, "%d of %d grabs are left for call %d of %d", left, waiting,
					calls+1, most)
			}
		}
	}
}
