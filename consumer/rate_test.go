package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Two workers on two shards share one rate. It takes no attempt, and a person changes it under way.
func TestRateOverAllWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	var mu sync.Mutex
	var at []time.Time // of each grant that was handed over
	s := newSink(func(_ context.Context, grants []hongbao.Grant) []error {
		mu.Lock()
		defer mu.Unlock()
		for range grants {
			at = append(at, time.Now())
		}
		return nil
	})
	for shard := range 2 {
		b.add(t, shard, repeat(5, 20)...)
	}
	var workers []*worker
	for _, name := range []string{"w1", "w2"} {
		cfg := b.config(t, name, s)
		cfg.GrantsPerSecond = 100
		workers = append(workers, start(t, cfg))
	}
	testkit.Eventually(t, soon, func() bool { return s.size() >= 150 }, "the rate lets them through")
	mu.Lock()
	took := at[149].Sub(at[0])
	mu.Unlock()
	require.Greater(t, took, 1200*time.Millisecond, "150 grants at 100 a second, of which the first 25 go at once")
	unbounded := 0
	for shard := range 2 {
		b.add(t, shard, repeat(50, 100)...)
		_, now, err := shards.Of(b.rdb, b.layout.Shard(shard)).LimitSink(t.Context(), group, &unbounded, "ann", "mended")
		require.NoError(t, err)
		require.Equal(t, 0, *now.Rate)
	}
	b.idle(t, 0) // 10,000 grants more would take 100 s at the rate
	b.idle(t, 1)
	for _, w := range workers {
		require.NoError(t, w.stop())
		require.Zero(t, w.Stats().Parked)
	}
	s.onceEach(t, 10_200)
}

// A person's bound stops what the worker's own setting would let through, and takes no attempt.
func TestRateSetByAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1, 1, 1)
	one := 1
	k := shards.Of(b.rdb, b.keys())
	_, _, err := k.LimitSink(t.Context(), group, &one, "ann", "slowly")
	require.NoError(t, err)
	_, _, err = k.Turn(t.Context(), &shards.RateCall{Sink: group, PerSecond: 1, Grants: 3600, Most: time.Minute})
	require.NoError(t, err) // somebody has just had an hour's grants
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return w.Stats().HandedBack >= 2 }, "it is not their turn")
	require.Zero(t, s.numberOfCalls())
	_, count := b.holder(t, ids[0])
	require.LessOrEqual(t, count, int64(1), "handing back takes no attempt")
	require.NoError(t, w.stop())
	require.Equal(t, Working, w.Health()[0].Code)
	for _, id := range ids {
		if holder, count := b.holder(t, id); holder != "" {
			require.Equal(t, "_retry/0", holder)
			require.Zero(t, count)
		}
	}
}

func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	var now, most atomic.Int64
	both := make(chan struct{}, 1)
	s := newSink(func(context.Context, []hongbao.Grant) []error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 2 { // one of two waits for the other, so that they are there at once
			both <- struct{}{}
		} else if most.Load() < 2 {
			<-both
		}
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
