package recovery_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// opensBlind lets a person open a shard without the ledger.
func (w *world) opensBlind(t *testing.T, shard int, why string) {
	t.Helper()
	rec := w.recoverer(func(c *recovery.Config) { c.Ledger = nil })
	reports, err := rec.Reports(t.Context())
	require.NoError(t, err)
	require.True(t, reports[shard].Frozen)
	require.NoError(t, rec.Accept(t.Context(), reports[shard], by("ann", why)))
}

// newProcess replaces the world's store and recoverer with those of a new process, which has seen no event.
func (w *world) newProcess(t *testing.T) {
	t.Helper()
	w.rdb = w.server.Client(t)
	w.store = w.over(w.rdb)
	w.rec = w.recoverer(func(*recovery.Config) {})
}

func (w *world) epochs(t *testing.T) (redis, inLedger int64) {
	t.Helper()
	head, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	state, err := w.ledger.Shard(t.Context(), 0)
	require.NoError(t, err)
	return head.Epoch, state.Epoch
}

// While the ledger is down a person opens a shard that has lost no event. Grabs continue, but workers wait until the
// ledger has recorded the decision and the epoch. Then a pause that Redis had lost is restored, too.
func TestOpeningWithoutTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	w.grab(t, w.rdb, 3)
	w.settle(t)
	old := w.older(t)
	_, _, err := w.shard().Group("kafka").Pause(ctx, by("bob", "the broker is full"))
	require.NoError(t, err)
	require.NoError(t, w.rec.KeepControls(ctx))
	w.restart(t, old)
	w.opensBlind(t, 0, "the database burns")
	require.Equal(t, 2, outcomes(w.grab(t, w.rdb, 2))[hongbao.OutcomeGranted])
	require.ErrorIs(t, w.shard().CheckRecorded(ctx), store.ErrUnrecorded)
	epoch, before := w.epochs(t)
	require.Greater(t, epoch, before+1<<20)

	require.NoError(t, w.rec.KeepOpening(ctx, 0))
	require.NoError(t, w.shard().CheckRecorded(ctx))
	epoch, after := w.epochs(t)
	require.Equal(t, epoch, after)
	words, err := w.ledger.AcceptedLosses(ctx, 10)
	require.NoError(t, err)
	require.Len(t, words, 1)
	require.Equal(t, []any{"ann", "the database burns", epoch}, []any{words[0].By, words[0].Why, words[0].Epoch})
	require.Contains(t, words[0].Lost, "the ledger was not asked")
	c, err := w.shard().Group("kafka").Control(ctx)
	require.NoError(t, err)
	require.True(t, c.Paused)
	w.settle(t)
	require.NoError(t, w.rec.KeepOpening(ctx, 0), "a second KeepOpening changes nothing")
	require.Equal(t, 1, outcomes(w.grab(t, w.rdb, 1))[hongbao.OutcomeGranted])
}

// A person opens a shard twice without the ledger, because the server restarts in between. The ledger gets both
// decisions, from KeepOpening or from the next opening.
func TestOpeningTwiceWithoutTheLedger(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(*testing.T, *world){
		"the ledger is back": func(t *testing.T, w *world) { require.NoError(t, w.rec.KeepOpening(t.Context(), 0)) },
		"the next opening has the ledger": func(t *testing.T, w *world) {
			w.restart(t, "")
			require.NoError(t, w.rec.KeepOpening(t.Context(), 0))
			require.ErrorIs(t, w.shard().CheckRecorded(t.Context()), store.ErrUnrecorded, "it is frozen")
			w.opens(t)
			testkit.Eventually(t, 20*time.Second, func() bool {
				return w.rec.OpenFrozen(t.Context(), 1) == nil && w.store.Shard(1).CheckRecorded(t.Context()) == nil
			}, "shard 1 is open")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupOf(t, 2)
			w.grab(t, w.rdb, 2)
			w.restart(t, "")
			w.opensBlind(t, 0, "first")
			w.grab(t, w.rdb, 2)
			w.restart(t, "")
			w.opensBlind(t, 0, "second")
			w.grab(t, w.rdb, 2)
			w.opensBlind(t, 1, "the other shard")
			finish(t, w)
			require.NoError(t, w.rec.KeepOpening(t.Context(), 1))
			require.NoError(t, w.shard().CheckRecorded(t.Context()))
			redis, inLedger := w.epochs(t)
			require.Equal(t, redis, inLedger)
			words, err := w.ledger.AcceptedLosses(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, words, 3)
			w.settle(t)
		})
	}
}

// A person opened a shard without the ledger. The ledger knows an event, a campaign or a later epoch that Redis did not
// have then. The shard freezes again until a person decides with the ledger.
func TestTheLedgerKnewMore(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *world){
		"an event": func(t *testing.T, w *world) {
			old := w.older(t)
			w.grab(t, w.server.Client(t), 2)
			w.settle(t)
			w.restart(t, old)
		},
		"a campaign": func(t *testing.T, w *world) {
			w.restart(t, "")
			require.NoError(t, w.rdb.Del(t.Context(), w.store.Shard(0).Keys.Campaign(id)).Err())
		},
		"an epoch": func(t *testing.T, w *world) {
			w.restart(t, "")
			state, err := w.ledger.Shard(t.Context(), 0)
			require.NoError(t, err)
			require.NoError(t, w.ledger.SetShard(t.Context(), 0, state.Epoch, ledger.ShardState{Epoch: 1 << 40, Token: "x"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.grab(t, w.rdb, 2)
			w.settle(t)
			lose(t, w)
			w.newProcess(t)
			w.opensBlind(t, 0, "the database burns")
			require.NoError(t, w.rec.KeepOpening(t.Context(), 0))
			_, err := w.shard().OpenHead(t.Context())
			require.ErrorIs(t, err, store.ErrFrozen)
			require.ErrorIs(t, w.shard().CheckRecorded(t.Context()), store.ErrUnrecorded)
			require.Equal(t, 1, w.logs.FilterMessageSnippet("the ledger knows more").Len())

			if name != "an epoch" {
				w.staysFrozen(t)
			}
			reports, err := w.rec.Reports(t.Context())
			require.NoError(t, err)
			require.True(t, reports[0].Lost())
			require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("bob", "the file is gone")))
			require.NoError(t, w.shard().CheckRecorded(t.Context()))
			redis, inLedger := w.epochs(t)
			require.Equal(t, redis, inLedger)
			state, _ := w.state(t)
			require.Equal(t, store.StateFrozen, state)
			words, err := w.ledger.AcceptedLosses(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, words, 2)
		})
	}
}

// Redis has lost an event that another source knows. Only the ledger can say to which campaign the event belongs, so no
// one can open the shard without the ledger.
func TestALossNeedsTheLedger(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *world){
		"the topic knows more": func(_ *testing.T, w *world) { w.topic.highest = 5 },
		"a caller has seen more": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(t.Context(), w.store.Shard(0).Keys.Meta(), "seen", "1 9").Err())
		},
		"Redis is empty": func(t *testing.T, w *world) { w.loses(t, w.store.Shard(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.grab(t, w.rdb, 2)
			w.restart(t, "")
			lose(t, w)
			rec := w.recoverer(func(c *recovery.Config) { c.Ledger = nil })
			reports, err := rec.Reports(t.Context())
			require.NoError(t, err)
			require.ErrorContains(t, rec.Accept(t.Context(), reports[0], by("ann", "no time")), "can't be opened without the ledger")
			_, err = w.shard().OpenHead(t.Context())
			require.ErrorIs(t, err, store.ErrFrozen)
		})
	}
}

// A failover right after an opening without the ledger loses the opening. The next opening gets a higher epoch.
func TestAFailoverLosesAnOpeningWithoutTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 2)
	w.restart(t, "")
	old := w.older(t)
	w.opensBlind(t, 0, "first")
	first, _ := w.epochs(t)
	w.restart(t, old)
	w.newProcess(t)
	w.opensBlind(t, 0, "second")
	second, _ := w.epochs(t)
	require.Greater(t, second, first)
	require.NoError(t, w.rec.KeepOpening(t.Context(), 0))
	redis, inLedger := w.epochs(t)
	require.Equal(t, []int64{second, second}, []int64{redis, inLedger})
}

// A producer has seen grants that Redis lost, and the shard was opened without the ledger. When the producer checks the
// shard, it freezes it again and raises an alarm.
func TestLateWitnessOfAnOpeningWithoutTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	old := w.older(t)
	late := w.process(t)
	require.Equal(t, 5, outcomes(w.grab(t, late.rdb, 5))[hongbao.OutcomeGranted])
	w.restart(t, old)
	w.opensBlind(t, 0, "the database burns")
	require.Equal(t, 1, outcomes(w.grab(t, w.rdb, 1))[hongbao.OutcomeGranted], "the fault fired")
	late.watch(t)
	w.isFrozen(t)
	require.Contains(t, <-late.alarms, store.LostData+": shard 0: event 15 was seen in epoch 1")
}

// The ledger has recorded an opening, but Redis loses the removal of the mark. The later events in the ledger are
// events after that opening. So nothing is lost, and the shard opens.
func TestAMarkThatComesBack(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 2)
	w.settle(t)
	w.restart(t, "")
	w.opensBlind(t, 0, "the database burns")
	require.Equal(t, 2, outcomes(w.grab(t, w.rdb, 2))[hongbao.OutcomeGranted])
	_, mark, err := w.shard().Unrecorded(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.KeepOpening(t.Context(), 0))
	w.settle(t)
	require.NoError(t, w.rdb.HSet(t.Context(), w.store.Shard(0).Keys.Meta(), "unrecorded", mark).Err())
	w.restart(t, "")
	w.opens(t)
	require.NoError(t, w.shard().CheckRecorded(t.Context()))
	words, err := w.ledger.AcceptedLosses(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, words, 1, "the ledger has recorded the decision once")
}

// hanging is a ledger whose HighestSeq does not return before its context ends.
type hanging struct {
	recovery.Ledger

	asked atomic.Int64
}

func (h *hanging) HighestSeq(ctx context.Context, _ int) (int64, error) {
	h.asked.Add(1)
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A person opens a shard while the ledger hangs and many workers try to open it, too. Once a person waits for the lock,
// no worker takes it.
func TestWorkersLetAPersonGoFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 3)
	w.restart(t, "")
	person := w.recoverer(func(c *recovery.Config) { c.Ledger = nil })
	reports, err := person.Reports(t.Context())
	require.NoError(t, err)
	worker := &store.LockCall{Name: "recover", Token: "a worker", Lease: time.Minute}
	taken, _, err := w.shard().TakeLock(t.Context(), worker)
	require.NoError(t, err)
	require.True(t, taken)
	accepted := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		accepted <- person.Accept(ctx, reports[0], by("ann", "the database hangs"))
	}()
	testkit.Eventually(t, 10*time.Second, func() bool {
		return w.rdb.Exists(t.Context(), w.store.Shard(0).Keys.Lock("accept")).Val() == 1
	}, "the person waits")

	hung := &hanging{Ledger: w.ledger}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	var looks atomic.Int64
	for range 20 {
		rec := w.recoverer(func(c *recovery.Config) { c.Ledger, c.Gather = hung, time.Millisecond })
		workers.Go(func() {
			for ctx.Err() == nil {
				_ = rec.OpenFrozen(ctx, 0) // fails when the test ends
				looks.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		workers.Wait()
	})
	testkit.Eventually(t, 10*time.Second, func() bool { return looks.Load() > 100 }, "the workers look")
	_, err = w.shard().ReleaseLock(t.Context(), worker)
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	require.Zero(t, hung.asked.Load())
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err)
}
