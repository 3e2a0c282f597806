package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// down returns a refuse function for a sink that is down until up is closed.
func down(up <-chan struct{}) func(context.Context, hongbao.Batch) []error {
	return func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if closed(up) {
			return nil
		}
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = hongbao.Outagef(hongbao.ClassUnknown, "connection refused")
		}
		return errs
	}
}

func TestOutageTakesNoAttemptAndReadsNothingMore(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5, 5)
	up := make(chan struct{})
	s := newSink(down(up))
	cfg := b.config(t, "w", s)
	cfg.Lease = keptLease
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() >= 1 }, "first probe")
	b.add(t, 0, 5)
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() >= 5 }, "more probes than MaxAttempts")
	p, err := b.rdb.XPending(t.Context(), b.keys().Keys.Events(), group).Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, p.Count, "nothing else was read")
	for _, id := range ids {
		holder, count := b.holder(t, id)
		require.Equal(t, "w", holder)
		require.EqualValues(t, 0, count, "the attempt was given back")
	}
	close(up)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 15)
	require.Empty(t, b.dead(t))
	n := w.Stats()
	require.EqualValues(t, 1, n.Outages)
	require.Zero(t, n.Parked)
	require.Zero(t, n.LeasesLost)
	require.Equal(t, 1, w.logs.FilterMessage("the sink works again").Len(), "the end of the outage is logged once")
}

func TestOutageInPartKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	tries := 0
	s := newSink(func(context.Context, hongbao.Batch) []error {
		if tries++; tries > 1 {
			return nil
		}
		return []error{nil, hongbao.Outagef(hongbao.ClassTransient, "down"), hongbao.Outagef(hongbao.ClassTransient, "down")}
	})
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
	came, _ := s.times(1)
	require.Equal(t, 1, came)
}

func TestOutageWhileDrainingHandsBackAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5, 5)
	s := newSink(down(nil))
	cfg := b.config(t, "w", s)
	cfg.DrainTimeout = time.Hour
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() >= 2 }, "waiting")
	require.NoError(t, w.stop(), "the worker does not wait for the drain time")
	for _, id := range ids {
		holder, count := b.holder(t, id)
		require.Equal(t, "_retry/0", holder)
		require.Zero(t, count, "no attempt was lost")
	}
	require.EqualValues(t, 2, w.drained()["left"])
	s2 := newSink(nil)
	w2 := start(t, b.config(t, "w2", s2))
	b.idle(t, 0)
	require.NoError(t, w2.stop())
	s2.onceEach(t, 10)
}

func TestDrainFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 5)
	in, out := make(chan struct{}), make(chan struct{})
	s := newSink(func(ctx context.Context, _ hongbao.Batch) []error {
		close(in)
		<-out
		return []error{ctx.Err(), nil, nil, nil, nil}
	})
	w := start(t, b.config(t, "w", s))
	<-in
	b.add(t, 0, 7)
	w.end()
	require.False(t, closed(w.done))
	close(out)
	require.NoError(t, w.wait())
	s.onceEach(t, 5)
	b.pending(t, 0)
	require.EqualValues(t, 5, w.drained()["done"])
	require.EqualValues(t, 0, w.drained()["left"])
}

func TestDrainOverHandsBackWithoutLosingAnAttempt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(grants []hongbao.Grant, err error) []error{
		"one error for all": func(grants []hongbao.Grant, err error) []error {
			errs := make([]error, len(grants))
			for i := range errs {
				errs[i] = err
			}
			return errs
		},
		"an error each": func(grants []hongbao.Grant, err error) []error {
			errs := make([]error, len(grants))
			for i := range errs {
				errs[i] = hongbao.Errorf(hongbao.ClassUnknown, "grant %d: %w", i, err)
			}
			return errs
		},
		"one done": func(grants []hongbao.Grant, err error) []error {
			return []error{nil, hongbao.Errorf(hongbao.ClassUnknown, "%w", err)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			ids := b.add(t, 0, 2)
			in := make(chan struct{})
			s := newSink(func(ctx context.Context, batch hongbao.Batch) []error {
				grants := batch.Grants
				close(in)
				<-ctx.Done()
				return fail(grants, ctx.Err())
			})
			cfg := b.config(t, "w", s)
			cfg.DrainTimeout, cfg.MaxAttempts = 10*time.Millisecond, 2
			w := start(t, cfg)
			<-in
			require.NoError(t, w.stop())
			holder, count := b.holder(t, ids[0])
			require.Equal(t, "_retry/0", holder)
			require.Zero(t, count)
			require.Empty(t, b.dead(t))
			require.Zero(t, w.Stats().Parked)
			require.Len(t, b.doneBits(t, 2), s.size())
			require.EqualValues(t, s.size(), w.drained()["done"])
			require.EqualValues(t, 1, w.drained()["left"])
		})
	}
}

// Workers start and stop under load. The lease is longer than the test, so the test hangs unless stopping workers hand
// their entries back.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	s := newSink(func(context.Context, hongbao.Batch) []error { return nil })
	config := func(name string) Config {
		cfg := b.config(t, name, s)
		cfg.Lease, cfg.BatchGrants = time.Hour, 20
		return cfg
	}
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan int)
	go func() {
		n := 0
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			if _, err := b.push(t.Context(), n%2, 3); err != nil {
				t.Error(err)
				break
			}
			n++
		}
		loaded <- 3 * n
	}()
	steady := start(t, config("steady"))
	var done, workers int64
	for i := range 20 {
		w := start(t, config("w"+string(rune('a'+i))))
		testkit.Eventually(t, soon, func() bool { return w.Stats().Done > 0 }, "worker %d works", i)
		require.NoError(t, w.stop())
		line := w.drained()
		require.Equal(t, w.Stats().Done, line["done"])
		require.EqualValues(t, 0, line["dead"])
		done += w.Stats().Done
		workers++
	}
	cancel()
	total := <-loaded
	b.idle(t, 0)
	b.idle(t, 1)
	require.NoError(t, steady.stop())
	s.onceEach(t, total)
	require.EqualValues(t, total, done+steady.Stats().Done, "the workers' numbers add up")
	require.Zero(t, steady.logged("shard waits"), "stopping a worker is not logged as a failure of Redis")
	require.EqualValues(t, 20, workers)
}

func TestRedisCallsAreNotBlamedForAStop(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	for i := range 20 {
		b.add(t, 0, repeat(1, 50)...)
		s := newSink(nil)
		cfg := b.config(t, "w"+string(rune('a'+i)), s)
		cfg.BatchGrants = 1
		w := start(t, cfg)
		testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() > i }, "works")
		require.NoError(t, w.stop())
		require.Zero(t, w.logged("shard waits"))
	}
}

// This test is not parallel, because the goroutines of other tests would count.
func TestRunLeavesNoGoroutine(t *testing.T) {
	b := setup(t, 3)
	for shard := range 3 {
		b.add(t, shard, 5, 5)
	}
	s := newSink(failing(func(seq int64) error {
		if seq == 3 {
			return errors.New("not now")
		}
		return nil
	}))
	rdb, reads := b.client(t, b.addr), b.client(t, b.addr)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	require.NoError(t, reads.Ping(t.Context()).Err())
	cfg := b.config(t, "w", s)
	cfg.Deployment = b.over(t, rdb, reads)
	before := goleak.IgnoreCurrent()
	c, err := New(cfg)
	require.NoError(t, err)
	stop := testkit.Go(t, c.Run)
	testkit.Eventually(t, soon, func() bool { return c.Stats().Done == 27 }, "done")
	stop()
	require.NoError(t, goleak.Find(before))
}

// While the sink is down, waiting workers are killed again and again. The sink tried no grant, so no grant becomes a
// dead letter.
func TestKillsDuringAnOutageTakeNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 1)
	for lives := range 7 { // more often than the child's MaxAttempts
		cmd := b.child(t, "down", fmt.Sprintf("w%d", lives))
		testkit.Eventually(t, soon, func() bool {
			return len(b.notes(t, fmt.Sprintf("w%d down", lives))) > 1 || len(b.dead(t)) > 0
		}, "met the outage")
		require.NoError(t, cmd.Process.Kill())
		<-cmd.ended
		require.Empty(t, b.dead(t), "after %d kills", lives)
	}
}
