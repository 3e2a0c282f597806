package consumer

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// shortLease is a lease that a test waits for. A busy machine may still stop a worker for a second.
const shortLease = 1500 * time.Millisecond

// keptLease is a lease for tests whose worker must not lose it, even on a busy machine.
const keptLease = 5 * time.Second

// vanish reads entries as a worker that then does nothing more, as if it had died.
func (b *bundle) vanish(t *testing.T, name string, count int) {
	t.Helper()
	_, err := b.keys().Group(group).Create(t.Context())
	require.NoError(t, err)
	raw, err := b.keys().Group(group).ReadNew(t.Context(), name, count, 0)
	require.NoError(t, err)
	require.Len(t, raw, count)
}

func TestPeerTakesOverFromADeadWorkerAfterTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5, 5)
	b.vanish(t, "gone", 2)
	s := newSink(nil)
	cfg := b.config(t, "peer", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.add(t, 0, 5)
	testkit.Eventually(t, soon, func() bool { return s.size() > 0 }, "new ones are handled")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 15)
	require.EqualValues(t, 2, w.Stats().Taken)
	holder, _ := b.holder(t, ids[0])
	require.Empty(t, holder)
}

func TestNothingIsTakenBeforeTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5, 5)
	b.vanish(t, "slow", 1)
	s := newSink(nil)
	cfg := b.config(t, "peer", s)
	cfg.Lease = time.Hour
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return s.size() == 5 }, "its own")
	b.add(t, 0, 5)
	testkit.Eventually(t, soon, func() bool { return s.size() == 10 }, "later entries are handled")
	require.NoError(t, w.stop())
	holder, count := b.holder(t, ids[0])
	require.Equal(t, "slow", holder)
	require.EqualValues(t, 1, count)
}

func TestLongHandlingKeepsItsLease(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 5)
	var in sync.Once
	began, out := make(chan struct{}), make(chan struct{})
	s := newSink(func(context.Context, hongbao.Batch) []error {
		in.Do(func() { close(began) })
		<-out
		return nil
	})
	config := func(name string) Config {
		cfg := b.config(t, name, s)
		cfg.Lease = keptLease
		return cfg
	}
	w1 := start(t, config("w1"))
	<-began
	w2 := start(t, config("w2"))
	begin := time.Now()
	testkit.Eventually(t, soon, func() bool { return time.Since(begin) > 3*keptLease/2 }, "one and a half leases have passed")
	require.Equal(t, 1, s.numberOfCalls(), "the peer has not taken the entry")
	close(out)
	b.idle(t, 0)
	require.NoError(t, w1.stop())
	require.NoError(t, w2.stop())
	s.onceEach(t, 5)
}

// Another worker takes the entry of a busy worker. At its next renewal the first worker notices the loss.
func TestLostLeaseCancelsTheHandlerAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]func(grants []hongbao.Grant) []error{
		"done nevertheless":  func([]hongbao.Grant) []error { return nil },
		"failed permanently": failGrants(func() error { return hongbao.Errorf(hongbao.ClassPermanent, "no") }),
		"failed":             failGrants(func() error { return errors.New("cancelled") }),
		"broken":             failGrants(func() error { return hongbao.Outagef(hongbao.ClassUnknown, "down") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			ids := b.add(t, 0, 2)
			in, cancelled := make(chan struct{}), make(chan error, 1)
			s := newSink(func(ctx context.Context, batch hongbao.Batch) []error {
				grants := batch.Grants
				close(in)
				<-ctx.Done()
				cancelled <- context.Cause(ctx)
				return result(grants)
			})
			cfg := b.config(t, "w", s)
			cfg.Lease = keptLease
			w := start(t, cfg)
			<-in
			claimed, err := b.rdb.XClaimJustID(t.Context(),
				&redis.XClaimArgs{Stream: b.keys().Keys.Events(), Group: group, Consumer: "thief", Messages: ids}).Result()
			require.NoError(t, err)
			require.Equal(t, ids, claimed)
			require.ErrorIs(t, <-cancelled, errLeaseLost)
			w.end()
			require.NoError(t, w.wait())
			require.EqualValues(t, 1, w.Stats().LeasesLost)
			require.Empty(t, b.doneBits(t, 2))
			require.Empty(t, b.dead(t))
			holder, _ := b.holder(t, ids[0])
			require.Equal(t, "thief", holder)
			require.Zero(t, w.Stats().Done)
		})
	}
}

func failGrants(of func() error) func(grants []hongbao.Grant) []error {
	return func(grants []hongbao.Grant) []error {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = of()
		}
		return errs
	}
}

// One entry of a batch is taken by another worker. The first worker hands its other entries back, and they lose no
// attempt.
func TestLostLeaseHandsTheRestOfTheBatchOn(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 2)
	in := make(chan struct{})
	s := newSink(func(ctx context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		close(in)
		<-ctx.Done()
		return failGrants(func() error { return errors.New("cancelled") })(grants)
	})
	cfg := b.config(t, "w", s)
	cfg.Lease = keptLease
	w := start(t, cfg)
	<-in
	w.end() // it reads nothing more
	_, err := b.rdb.XClaimJustID(t.Context(), &redis.XClaimArgs{Stream: b.keys().Keys.Events(), Group: group, Consumer: "thief",
		Messages: ids[:1]}).Result()
	require.NoError(t, err)
	require.NoError(t, w.wait())
	holder, count := b.holder(t, ids[1])
	require.Equal(t, "_retry/0", holder)
	require.Zero(t, count)
}

// A handler never returns, so its worker stops renewing the lease, and a peer takes over. When the handler finally
// returns, its worker writes nothing.
func TestHandlerThatNeverReturnsIsNotRenewed(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 5)
	out := make(chan struct{})
	s1 := newSink(func(context.Context, hongbao.Batch) []error { <-out; return nil })
	stuck := b.config(t, "stuck", s1)
	stuck.Lease, stuck.HandleTimeout = shortLease, 50*time.Millisecond
	w1 := start(t, stuck)
	testkit.Eventually(t, soon, func() bool { return s1.numberOfCalls() == 1 }, "stuck")
	s2 := newSink(nil)
	peer := b.config(t, "peer", s2)
	peer.Lease = keptLease
	w2 := start(t, peer)
	b.idle(t, 0)
	s2.onceEach(t, 5)
	testkit.Eventually(t, soon, func() bool { return w1.Stats().LeasesLost == 1 }, "its lease is lost")
	close(out)
	require.NoError(t, w1.stop())
	require.NoError(t, w2.stop())
	require.Zero(t, w1.Stats().Done)
}

func TestHandlerThatIsAlwaysTooSlowEndsAsADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 1)
	var w atomic.Pointer[worker]
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		lost := int64(0)
		if p := w.Load(); p != nil {
			lost = p.Stats().LeasesLost
		}
		testkit.Eventually(t, soon, func() bool { p := w.Load(); return p != nil && p.Stats().LeasesLost > lost },
			"lease lost")
		return failGrants(func() error { return errors.New("too late") })(grants)
	})
	cfg := b.config(t, "w", s)
	cfg.Lease, cfg.HandleTimeout, cfg.MaxAttempts = 150*time.Millisecond, 10*time.Millisecond, 2
	w.Store(start(t, cfg))
	b.idle(t, 0)
	require.GreaterOrEqual(t, s.numberOfCalls(), 2) // a lease that ends for another reason counts no attempt
	require.Len(t, b.dead(t), 1)
}

func TestTwoWorkersHandleEachGrantOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	s := newSink(nil)
	var ws []*worker
	for _, name := range []string{"w1", "w2", "w3"} {
		cfg := b.config(t, name, s)
		cfg.BatchGrants = 50
		ws = append(ws, start(t, cfg))
	}
	for range 20 {
		b.add(t, 0, repeat(5, 20)...)
	}
	b.idle(t, 0)
	var sum int64
	for _, w := range ws {
		require.NoError(t, w.stop())
		sum += w.Stats().Done
	}
	s.onceEach(t, 2000)
	require.EqualValues(t, 2000, sum)
}

// scriptWith returns a function that matches requests to run a script whose arguments contain all the words.
func scriptWith(words ...string) func([]byte) bool {
	return func(request []byte) bool {
		if !bytes.Contains(bytes.ToLower(request), []byte("eval")) {
			return false
		}
		for _, word := range words {
			if !bytes.Contains(request, []byte(word)) {
				return false
			}
		}
		return true
	}
}

func TestLostReplyOfTheAckDrainsAllTheSame(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"client repeats": 3, "consumer repeats": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			proxy := testkit.NewProxy(t, b.addr)
			s := newSink(nil)
			cfg := b.config(t, "w", s)
			opts := clientOptions(proxy.Addr)
			opts.MaxRetries = retries
			c := redis.NewClient(opts)
			t.Cleanup(func() { _ = c.Close() })
			cfg.Deployment = b.over(t, c, b.client(t, b.addr))
			proxy.SwallowAnswers(3, scriptWith("done:"+group))
			b.add(t, 0, 5, 5)
			w := start(t, cfg)
			b.idle(t, 0)
			testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 10 }, "counted once")
			require.NoError(t, w.stop())
			require.Equal(t, 3, proxy.Fired().Swallowed)
			s.onceEach(t, 10)
		})
	}
}

func TestDeadLetterIsWrittenOnceWhenItsReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"client repeats": 3, "consumer repeats": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			proxy := testkit.NewProxy(t, b.addr)
			cfg := b.config(t, "w", newSink(failing(func(seq int64) error {
				if seq%2 == 0 {
					return hongbao.Errorf(hongbao.ClassPermanent, "no")
				}
				return nil
			})))
			opts := clientOptions(proxy.Addr)
			opts.MaxRetries = retries
			c := redis.NewClient(opts)
			t.Cleanup(func() { _ = c.Close() })
			cfg.Deployment = b.over(t, c, b.client(t, b.addr))
			proxy.SwallowAnswers(3, scriptWith(":dead:"))
			b.add(t, 0, 4, 1)
			b.raw(t, "1", "nonsense")
			w := start(t, cfg)
			b.idle(t, 0)
			require.NoError(t, w.stop())
			require.Equal(t, 3, proxy.Fired().Swallowed)
			require.Len(t, b.dead(t), 3)
			require.Len(t, b.doneBits(t, 5), 5)
		})
	}
}

// The worker is cut off from Redis, and its calls hang for longer than the lease. It must cancel the handler when the
// lease is over, and not wait until its calls fail.
func TestWorkerCutOffFromRedisGivesUpItsLeaseInTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 5)
	proxy := testkit.NewProxy(t, b.addr)
	in, cancelled := make(chan struct{}), make(chan error, 1)
	s := newSink(func(ctx context.Context, _ hongbao.Batch) []error {
		close(in)
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return nil
	})
	cfg := b.config(t, "w", s)
	o := clientOptions(proxy.Addr)
	o.ReadTimeout = soon
	slow := redis.NewClient(o)
	t.Cleanup(func() { _ = slow.Close() })
	cfg.Deployment, cfg.Lease = b.over(t, slow, b.client(t, b.addr)), time.Second
	w := start(t, cfg)
	<-in
	proxy.Delay(time.Minute)
	begin := time.Now()
	select {
	case err := <-cancelled:
		require.ErrorIs(t, err, errLeaseLost)
	case <-time.After(soon):
		t.Fatal("the handler was never cancelled")
	}
	require.Less(t, time.Since(begin), soon/2, "the worker does not wait for its calls to Redis")
	proxy.Delay(0)
	proxy.CutAll()
	require.NoError(t, w.stop())
	require.Empty(t, b.doneBits(t, 5))
}
