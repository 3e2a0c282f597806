package consumer

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// handed records the time of each delivered grant.
type handed struct {
	mu sync.Mutex
	at []time.Time
}

// upTo returns the time between the first and the i-th delivery.
func (h *handed) upTo(i int) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].Sub(h.at[0])
}

// after returns the time between an earlier moment and the i-th delivery.
func (h *handed) after(began time.Time, i int) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].Sub(began)
}

func newTimedSink() (*handed, *sink) {
	h := &handed{}
	return h, newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		h.mu.Lock()
		defer h.mu.Unlock()
		for range grants {
			h.at = append(h.at, time.Now())
		}
		return nil
	})
}

// Two workers on two shards share one rate, and waiting for it takes no attempt. An operator removes the rate while
// the workers run.
func TestRateOverAllWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	at, s := newTimedSink()
	for shard := range 2 {
		b.add(t, shard, repeat(5, 20)...)
	}
	var workers []*worker
	began := time.Now()
	for _, name := range []string{"w1", "w2"} {
		cfg := b.config(t, name, s)
		cfg.GrantsPerSecond = 100
		workers = append(workers, start(t, cfg))
	}
	testkit.Eventually(t, soon, func() bool { return s.size() >= 150 }, "the rate lets them through")
	require.Greater(t, at.after(began, 149), 1200*time.Millisecond, "150 grants at 100 per second, the first 25 without a wait")
	unbounded := 0
	for shard := range 2 {
		b.add(t, shard, repeat(50, 100)...)
		_, now, err := b.store.Shard(shard).Group(group).Limit(t.Context(), &unbounded, annSays("fixed"))
		require.NoError(t, err)
		require.Equal(t, 0, *now.Rate)
	}
	b.idle(t, 0) // at the old rate, these 10,000 grants would take 100 s
	b.idle(t, 1)
	for _, w := range workers {
		require.NoError(t, w.stop())
		require.Zero(t, w.Stats().Parked)
	}
	s.onceEach(t, 10_200)
}

// homeDown is a hook that fails a client's rate calls to the sink's home shard, as if its server were down.
type homeDown struct {
	key          string
	down         atomic.Bool
	failed, went atomic.Int64
}

func (*homeDown) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*homeDown) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *homeDown) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !slices.Contains(cmd.Args(), any(h.key)) {
			return next(ctx, cmd)
		}
		if h.down.Load() {
			h.failed.Add(1)
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		h.went.Add(1)
		return next(ctx, cmd)
	}
}

// The sink's home shard is down. The other shards continue with their parts of the rate until it is back.
func TestRateWhileItsHomeIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	home := b.store.Home(group).Index()
	other := (home + 1) % 4
	h := &homeDown{key: b.store.Shard(home).Keys.Rate(group)}
	h.down.Store(true)
	at, s := newTimedSink()
	b.add(t, other, 20, 20)
	cfg := b.config(t, "w", s)
	cfg.GrantsPerSecond = 80 // 20 for each of the four shards
	client := b.client(t, b.addr)
	client.AddHook(h)
	cfg.Deployment = b.over(t, client, b.client(t, b.addr))
	w := start(t, cfg)
	b.idle(t, other)
	require.Positive(t, h.failed.Load(), "the fault fired")
	require.Greater(t, at.upTo(39), 1500*time.Millisecond, "40 grants at 20 per second, the first 5 without a wait")
	require.Equal(t, 1, w.logged("each shard takes its part"), "logged once")
	h.down.Store(false)
	testkit.Eventually(t, soon, func() bool {
		b.add(t, other, 1)
		return h.went.Load() > 0
	}, "the home is asked again")
	b.idle(t, other)
	require.NoError(t, w.stop())
	require.Equal(t, 2, w.logged("each shard takes its part"), "logged once for the outage and once for its end")
	require.Zero(t, w.Stats().Parked)
}

// A rate that an operator has set applies although the worker's own configuration has no limit. Waiting for it takes
// no attempt.
func TestRateSetByAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1, 1, 1)
	one := 1
	k := b.keys()
	_, _, err := k.Group(group).Limit(t.Context(), &one, annSays("slowly"))
	require.NoError(t, err)
	b.useTurns(t, 60)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	begin := time.Now()
	testkit.Eventually(t, soon, func() bool {
		b.useTurns(t, 60) // keep the next free turn a minute away
		return w.Stats().HandedBack > 0 && time.Since(begin) > 4*time.Second
	}, "the grants wait for their turn")
	require.Zero(t, s.numberOfCalls())
	b.pending(t, 1)
	require.EqualValues(t, 1, w.Stats().HandedBack, "a waiting worker takes no further entries")
	holder, count := b.holder(t, ids[0])
	require.Equal(t, "_retry/0", holder)
	require.Zero(t, count, "handing back takes no attempt")
	unbounded := 0
	_, _, err = k.Group(group).Limit(t.Context(), &unbounded, annSays("fixed"))
	require.NoError(t, err)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
}

// useTurns uses up the next turns of the sink's rate, for the given number of seconds.
func (b *bundle) useTurns(t *testing.T, seconds int) {
	t.Helper()
	_, _, err := b.keys().ReserveRate(t.Context(), &store.RateCall{
		Sink: group, PerSecond: 1, Grants: seconds, Portion: seconds, Most: time.Hour,
	})
	require.NoError(t, err)
}

// An operator sets a rate while a worker has a batch in hand. The rate also limits the rest of that batch, and
// removing the rate lets the batch continue at full speed.
func TestRateSetWhileABatchIsInHand(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 50)
	var mu sync.Mutex
	var sizes []int
	first := make(chan struct{})
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		mu.Lock()
		sizes = append(sizes, len(grants))
		n := len(sizes)
		mu.Unlock()
		if n > 1 {
			return nil
		}
		<-first
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = hongbao.Outagef(hongbao.ClassTransient, "down")
		}
		return errs
	})
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() == 1 }, "the call has begun")
	four, unbounded := 4, 0
	k := b.keys()
	_, _, err := k.Group(group).Limit(t.Context(), &four, annSays("slowly"))
	require.NoError(t, err)
	limited := time.Now()
	testkit.Eventually(t, soon, func() bool { return time.Since(limited) > controlAge }, "the worker's knowledge is old")
	close(first)
	testkit.Eventually(t, soon, func() bool { return s.size() >= 3 }, "the batch continues slowly")
	_, _, err = k.Group(group).Limit(t.Context(), &unbounded, annSays("fixed"))
	require.NoError(t, err)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 50)
	require.Equal(t, []int{50, 1, 1, 1}, sizes[:4])
}

// After the first call of a batch, the rest waits for its turn at the rate. The grants that failed in that call lose
// an attempt and wait for their backoff all the same.
func TestRateCountsFailedAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 6)
	s := newSink(nil)
	s.refuse = func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		b.useTurns(t, 60)
		errs := make([]error, len(grants))
		errs[0] = hongbao.Errorf(hongbao.ClassTransient, "not this one")
		return errs
	}
	cfg := b.config(t, "w", s)
	cfg.GrantsPerSecond, cfg.Backoff, cfg.MaxBackoff = 8, time.Hour, time.Hour
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Parked+w.Stats().HandedBack > 0 }, "the rest must wait")
	require.NoError(t, w.stop())
	holder, count := b.holder(t, ids[0])
	require.Regexp(t, `^_retry/1/\d+$`, holder)
	require.EqualValues(t, 1, count)
	require.Equal(t, []int64{2}, b.doneBits(t, 6))
	require.Equal(t, 1, s.numberOfCalls())
}

// With MaxCalls 1, a call that hangs blocks the entries of all shards of its worker. Another worker gets them after at
// most one lease.
func TestHungCallUnderMaxCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	for shard := range 2 {
		b.add(t, shard, 3)
	}
	hang := make(chan struct{})
	hung := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		<-hang // ignores its context
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = context.Canceled
		}
		return errs
	})
	cfg := b.config(t, "hung", hung)
	cfg.MaxCalls, cfg.Lease, cfg.HandleTimeout = 1, shortLease, 10*time.Millisecond
	w := start(t, cfg)
	defer close(hang)
	testkit.Eventually(t, soon, func() bool { return hung.numberOfCalls() == 1 }, "one call hangs")
	testkit.Eventually(t, soon, func() bool { return w.Stats().HandedBack >= 1 }, "the other shard's entry is back")
	s := newSink(nil)
	other := b.config(t, "other", s)
	other.Lease = keptLease
	w2 := start(t, other)
	b.idle(t, 0)
	b.idle(t, 1)
	require.NoError(t, w2.stop())
	s.onceEach(t, 6)
	require.Equal(t, 1, hung.numberOfCalls())
	w.end()
}

func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	var now, most atomic.Int64
	both := make(chan struct{}) // closed when two calls are running
	together := sync.OnceFunc(func() { close(both) })
	s := newSink(func(context.Context, hongbao.Batch) []error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 2 {
			together()
		}
		<-both // the first call waits for the second
		return nil
	})
	for shard := range 4 {
		b.add(t, shard, repeat(3, 30)...)
	}
	cfg := b.config(t, "w", s)
	cfg.MaxCalls, cfg.MaxEntries = 2, 3
	w := start(t, cfg)
	for shard := range 4 {
		b.idle(t, shard)
	}
	require.NoError(t, w.stop())
	s.onceEach(t, 360)
	require.EqualValues(t, 2, most.Load())
}
