package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// loader adds entries of 3 grants until stop is called, which returns the number of grants in the stream. Redis may
// fail meanwhile, so a failed write may have been carried out. The stream shows which writes were.
func (b *bundle) loader(t *testing.T) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			pipe := b.rdb.TxPipeline()
			pipe.Do(context.Background(), append([]any{"XADD", b.keys().Keys.Events(), "*"}, fields(b.seqs[0]+1, 3)...)...)
			pipe.HSet(context.Background(), b.keys().Keys.Meta(), "seq", b.seqs[0]+3)
			if _, err := pipe.Exec(context.Background()); err == nil {
				b.seqs[0] += 3
				continue
			}
			b.seqs[0] += 3 // the entry may exist, so do not reuse its seqs
		}
	}()
	return func() int {
		cancel()
		<-ended
		var n int64
		testkit.EventuallyOK(t, soon, func() (err error) { // the client may still believe that Redis is down
			n, err = b.rdb.XLen(context.Background(), b.keys().Keys.Events()).Result()
			return err
		}, "length")
		return 3 * int(n)
	}
}

func TestRedisKilledAndRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	b, server := setupOwn(t, 1)
	stop := b.loader(t)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Lease = time.Second
	w := start(t, cfg)
	for i := range 3 {
		before := s.size()
		testkit.Eventually(t, soon, func() bool { return s.size() > before+30 }, "round %d: it flows", i)
		require.NoError(t, server.Kill())
		testkit.Eventually(t, soon, func() bool { return w.logged("shard waits") > i }, "round %d: noticed", i)
		require.NoError(t, server.Restart())
	}
	before := s.size()
	testkit.Eventually(t, soon, func() bool { return s.size() > before+30 }, "grants are handled again")
	total := stop()
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Equal(t, total, s.size(), "nothing is lost")
	require.Empty(t, b.dead(t))
	require.Zero(t, w.Stats().Groups)
	require.Zero(t, w.Stats().Vanished)
}

func TestRedisThatIsDownAtTheStartIsNoVanishedGroup(t *testing.T) {
	t.Parallel()
	b, server := setupOwn(t, 1)
	b.add(t, 0, 5)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	require.NoError(t, server.Kill())
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.logged("shard waits") > 0 }, "it waits")
	require.NoError(t, server.Restart())
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 5)
	require.Zero(t, w.Stats().Groups, "a new group does not count as vanished")
	require.Zero(t, w.logged("vanished"))
}

func TestGroupDestroyedUnderLoadIsCreatedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	stop := b.loader(t)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	for i := range int64(3) {
		before := s.size()
		testkit.Eventually(t, soon, func() bool { return s.size() > before+30 }, "it flows")
		require.NoError(t, b.rdb.XGroupDestroy(t.Context(), b.keys().Keys.Events(), group).Err())
		testkit.Eventually(t, soon, func() bool { return w.Stats().Groups == i+1 }, "created again, and counted")
	}
	total := stop()
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, total)
	require.Equal(t, 3, w.logged("had vanished"))
	require.Positive(t, w.Stats().Skipped)
	require.Zero(t, w.Stats().Vanished)
}

func TestStreamDeletedIsSurvived(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, b.rdb.Del(t.Context(), b.keys().Keys.Events()).Err())
	testkit.Eventually(t, soon, func() bool { return w.Stats().Groups == 1 }, "created again")
	b.add(t, 0, 3)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 6)
}

func TestKeyOfAnotherTypeBreaksTheShard(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	w := start(t, b.config(t, "w", newSink(nil)))
	testkit.Eventually(t, soon, func() bool {
		return b.rdb.XLen(t.Context(), b.keys().Keys.Events()).Err() == nil &&
			b.rdb.Exists(t.Context(), b.keys().Keys.Events()).Val() == 1
	}, "runs")
	require.NoError(t, b.rdb.Set(t.Context(), b.keys().Keys.Events(), "planted", 0).Err())
	w.awaitHealth(0, ShardBroken)
	err := w.stop()
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// If the done bits and the group are lost, the sink gets all events again. Sinks are idempotent.
func TestDoneBitsDeletedAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 10, 10)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, b.rdb.Del(t.Context(), b.keys().Keys.Done(group, 0)).Err())
	require.NoError(t, b.rdb.XGroupDestroy(t.Context(), b.keys().Keys.Events(), group).Err())
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 40 }, "all came again")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	for seq := int64(1); seq <= 20; seq++ {
		came, _ := s.times(seq)
		require.Equal(t, 2, came)
	}
	require.Len(t, b.doneBits(t, 20), 20)
}

func TestNewEntriesFlowBetweenParkedOnes(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(1, 200)...)
	var later atomic.Bool
	s := newSink(failing(func(seq int64) error {
		if seq <= 200 && !later.Load() {
			return hongbao.Errorf(hongbao.ClassTransient, "not now")
		}
		return nil
	}))
	cfg := b.config(t, "w", s)
	cfg.Backoff, cfg.MaxBackoff, cfg.MaxAttempts, cfg.BatchGrants = time.Millisecond, time.Millisecond, 1000, 10
	cfg.MaxEntries = 10
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Parked > 400 }, "the parked entries are retried")
	b.add(t, 0, repeat(1, 20)...)
	testkit.Eventually(t, soon, func() bool { return s.size() == 20 }, "new ones are done")
	later.Store(true)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 220)
}
