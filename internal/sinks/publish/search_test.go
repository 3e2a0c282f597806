package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// longLog leaves an orphan and writes many batches after it, so that looking back takes many requests.
func longLog(t *testing.T, f fate) (*bench, []hongbao.Grant, *wire) {
	t.Helper()
	b := setup(t)
	b.cfg.FetchBytes = 64 << 10
	g, zombie := orphan(t, b, 20, f)
	p, _ := b.worker(t)
	for range 40 {
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(2, 100, decided))))
	}
	return b, g, zombie
}

// Looking back at a long log takes several calls. Each call continues where the previous call stopped.
func TestLookingBackGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"arrived": swallow, "did not arrive": deferred} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g, zombie := longLog(t, f)
			p, w := forgetful(t, b)
			var read, last int64
			var stop context.CancelFunc
			left, backwards := 0, 0
			handle := func() []error {
				var ctx context.Context
				ctx, stop = context.WithCancel(t.Context())
				defer stop()
				left = 4
				return p.Handle(ctx, testkit.Batch(g))
			}
			w.answer = func(r kafka.Request) error {
				if r, ok := r.(*fetch.Request); ok {
					at := r.Topics[0].Partitions[0].FetchOffset
					if own := p.slots[0].last; own != nil && at == own.offset {
						return nil // checkLast asks for it
					}
					if left--; left < 0 {
						stop() // the time of the call ends
						return errWire
					}
					if at < last {
						backwards++
					}
					last = at
					read++
				}
				return nil
			}
			calls := 0
			for errs := []error{nil}; errs != nil; calls++ {
				require.Less(t, calls, 100, "the search never ends")
				if calls > 0 {
					require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]))
					require.True(t, hongbao.IsOutage(errs[0]), "it takes no attempt: %v", errs[0])
				}
				errs = handle()
			}
			require.Greater(t, calls, 3, "one call was not enough")
			require.Zero(t, backwards, "nothing was read twice")
			require.EqualValues(t, 1, p.Stats().FoundInLog+p.Stats().LetGo)
			require.Empty(t, p.slots[0].searches, "the finished search is removed")
			zombie.flush(t)
			others := b.store.shard(2).entries
			all := [][]hongbao.Grant{g, b.store.shard(4).entries[0].Grants}
			for i := range others {
				all = append(all, others[i].Grants)
			}
			requireOneCopy(t, &b.cfg, all...)
			t.Logf("%d calls, %d requests", calls, read)
		})
	}
}

// Looking back may take longer than MaxClaimAge. Then the worker takes over the claim again before it sends the fence
// record.
func TestLookingBackLongerThanAClaimIsGoodFor(t *testing.T) {
	t.Parallel()
	b, g, zombie := longLog(t, deferred)
	p, w := forgetful(t, b)
	clock := time.Now()
	p.now = func() time.Time { return clock }
	slow := 0
	w.answer = func(r kafka.Request) error {
		if _, ok := r.(*fetch.Request); ok && slow < 8 {
			slow++
			clock = clock.Add(b.cfg.MaxClaimAge / 2)
		}
		return nil
	}
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.Equal(t, 8, slow)
	s := p.Stats()
	require.EqualValues(t, 1, s.LetGo)
	require.EqualValues(t, 2, s.TakenOver, "the claim was taken over again")
	require.Zero(t, s.Stale)
	zombie.flush(t)
	require.Len(t, topicContent(t, &b.cfg)[g[0].EventID()], 1)
}

// The log loses a part that the search has already read. The worker reports this once, and then searches the current
// log.
func TestLogThatShrankWhileLookingBack(t *testing.T) {
	t.Parallel()
	b, g, zombie := longLog(t, deferred)
	p, w := forgetful(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 4
	w.answer = func(r kafka.Request) error {
		if _, ok := r.(*fetch.Request); ok {
			if left--; left < 0 {
				cancel()
				return errWire
			}
		}
		return nil
	}
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), 20, hongbao.ClassTransient, true)
	require.NoError(t, b.broker.DeleteTopic(testTopic))
	require.NoError(t, b.broker.CreateTopic(testTopic, 2, nil))
	fresh, _ := b.worker(t)
	require.Nil(t, fresh.Handle(t.Context(), testkit.Batch(b.store.grants(2, 20, decided))),
		"the new log ends after the noted offset and before the last one that was read")
	w.answer = nil
	errs := p.Handle(t.Context(), testkit.Batch(g))
	requireClass(t, errs, 20, hongbao.ClassBroken, false)
	require.ErrorContains(t, errs[0], "went back")
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, p.Stats().LetGo)
	zombie.flushQuietly()
	entries := b.store.shard(2).entries
	requireOneCopy(t, &b.cfg, g, entries[len(entries)-1].Grants)
}
