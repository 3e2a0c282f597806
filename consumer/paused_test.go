package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func annSays(why string) stream.Decision { return stream.Decision{By: "ann", Why: why} }

func (b *bundle) pause(t *testing.T) {
	t.Helper()
	_, _, err := b.keys().Group(group).Pause(t.Context(), annSays("the bank is closed"))
	require.NoError(t, err)
}

func (b *bundle) resume(t *testing.T) {
	t.Helper()
	_, _, err := b.keys().Group(group).Resume(t.Context(), annSays("the bank is open"))
	require.NoError(t, err)
}

func (b *bundle) paused(t *testing.T, w *worker) {
	t.Helper()
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].Code == SinkPaused }, "the worker has noticed the pause")
}

// An operator pauses a sink that is down while a worker retries it. The retries stop, and no attempt is lost.
func TestPauseDuringAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5, 5)
	up := make(chan struct{})
	s := newSink(down(up))
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() >= 2 }, "the sink is tried")
	b.pause(t)
	b.paused(t, w)
	for _, id := range ids {
		holder, count := b.holder(t, id)
		require.Equal(t, "_retry/0", holder)
		require.Zero(t, count)
	}
	require.ErrorContains(t, w.Health()[0].Err, `by "ann"`)
	require.ErrorContains(t, w.Health()[0].Err, "the bank is closed")
	close(up)
	calls := s.numberOfCalls()
	w2 := start(t, b.config(t, "w2", s)) // a worker that starts during the pause
	b.paused(t, w2)
	require.Equal(t, calls, s.numberOfCalls())
	b.resume(t)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.NoError(t, w2.stop())
	s.onceEach(t, 10)
	require.Empty(t, b.dead(t))
}

// A batch that fails as a whole is halved again and again. A pause stops the worker between two of these calls.
func TestPauseBetweenTwoCallsOfABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 8)
	bad := hongbao.Errorf(hongbao.ClassTransient, "not now")
	first := make(chan struct{})
	s := newSink(nil)
	s.refuse = func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if s.numberOfCalls() == 1 {
			<-first // longer than controlAge
		}
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = bad
		}
		return errs
	}
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() == 1 }, "the call has begun")
	b.pause(t)
	paused := time.Now()
	testkit.Eventually(t, soon, func() bool { return time.Since(paused) > controlAge }, "the worker's knowledge is old")
	close(first)
	b.paused(t, w)
	require.Equal(t, 1, s.numberOfCalls(), "the halves were not tried")
	b.pending(t, 1)
	require.Zero(t, w.Stats().Parked)
	require.NoError(t, w.stop())
}

// While the sink is paused, a worker still appears in the status, but does not reclaim the entries of a dead worker.
func TestPausedWorkerReclaimsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	k := b.keys()
	_, err := k.Group(group).Create(t.Context())
	require.NoError(t, err)
	_, err = k.Group(group).ReadNew(t.Context(), "dead", 10, 0)
	require.NoError(t, err)
	b.pause(t)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.paused(t, w)
	testkit.Eventually(t, soon, func() bool {
		st, err := k.Group(group).Status(t.Context())
		return err == nil && len(st.Workers) == 2 && st.Workers[0].Seen > 2*shortLease && st.Workers[0].Holds == 1
	}, "the dead worker's lease is over, and its entry stays")
	require.Zero(t, s.numberOfCalls())
	b.resume(t)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
}

// A call waits for its slot under Config.MaxCalls. If the sink is paused meanwhile, the call is not made.
func TestPauseBehindMaxCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	for shard := range 2 {
		b.add(t, shard, 3)
	}
	first := make(chan struct{})
	s := newSink(func(context.Context, hongbao.Batch) []error {
		<-first
		return nil
	})
	cfg := b.config(t, "w", s)
	cfg.MaxCalls = 1
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool {
		held := int64(0)
		for shard := range 2 {
			p, err := b.rdb.XPending(t.Context(), b.store.Shard(shard).Keys.Events(), group).Result()
			if err == nil {
				held += p.Count
			}
		}
		return s.numberOfCalls() == 1 && held == 2
	}, "one call has begun, the other waits")
	for shard := range 2 {
		_, _, err := b.store.Shard(shard).Group(group).Pause(t.Context(), annSays("the bank is closed"))
		require.NoError(t, err)
	}
	paused := time.Now()
	testkit.Eventually(t, soon, func() bool { return time.Since(paused) > controlAge }, "the worker's knowledge is old")
	close(first)
	testkit.Eventually(t, soon, func() bool {
		return w.Health()[0].Code == SinkPaused && w.Health()[1].Code == SinkPaused
	}, "the worker has noticed the pause")
	require.Equal(t, 1, s.numberOfCalls())
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
}

// The sink's hash in Redis is corrupted, so the reclaim fails after it has taken an entry. The entry is handed back
// and loses no attempt.
func TestSpoiledPauseTakesNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 3)
	k := b.keys()
	_, err := k.Group(group).Create(t.Context())
	require.NoError(t, err)
	_, err = k.Group(group).ReadNew(t.Context(), "dead", 10, 0)
	require.NoError(t, err)
	_, err = k.Group(group).Park(t.Context(), "dead", []store.Parking{{ID: ids[0]}})
	require.NoError(t, err)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Sink(group), "at", "noon").Err())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return w.Stats().HandedBack >= 2 }, "the worker takes the entry and hands it back")
	holder, count := b.holder(t, ids[0])
	require.Contains(t, []string{"_retry/0", "w"}, holder)
	require.LessOrEqual(t, count, int64(1))
	require.NoError(t, b.rdb.Del(t.Context(), b.keys().Keys.Sink(group)).Err())
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
}
