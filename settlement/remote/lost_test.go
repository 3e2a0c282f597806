package remote

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// forgetAll is a failover of Redis to a replica that has none of it.
func (m *memClaims) forgetAll() (lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost = len(m.done)
	clear(m.open)
	clear(m.done)
	clear(m.noted)
	return lost
}

// Redis loses what it knew of grants that are settled, and they come again: the ledger knows.
func TestRedisLosesWhatWasSettled(t *testing.T) {
	t.Parallel()
	kinds := maps.Clone(kinds)
	kinds["both"] = func(*Config) {}
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			b.forgets = true // it would book whatever it is sent
			h := newRecording(t, b, m.as("w1"), l, change)
			all := grants(1, 20)
			require.Nil(t, h.Handle(t.Context(), all[:10]))
			require.Equal(t, 10, m.forgetAll())
			require.Nil(t, h.Handle(t.Context(), all), "the first ten again, with new ones")
			b.holds(t, all)
			l.has(t, all)
			require.Zero(t, m.left())
			require.EqualValues(t, 20, h.Stats().Credited)

			sent := b.all()
			require.Equal(t, 20, m.forgetAll())
			for what, change := range map[string]func(g *hongbao.Grant){
				"user": func(g *hongbao.Grant) { g.User = "thief" }, "seq": func(g *hongbao.Grant) { g.Seq += 100 },
				"shard": func(g *hongbao.Grant) { g.Shard++ },
			} {
				list := slices.Clone(all[:3])
				change(&list[1])
				if list[1].Shard != 0 { // all of a call are of one shard
					list = list[1:2]
				}
				errs := h.Handle(t.Context(), list)
				require.Len(t, errs, len(list), what)
				for i := range list {
					if list[i].Packet == 2 {
						require.ErrorIs(t, errs[i], ErrContradiction, what)
						require.Equal(t, hongbao.Conflict, hongbao.ClassOf(errs[i]), what)
					} else {
						require.NoError(t, errs[i], what)
					}
				}
			}
			require.Equal(t, sent, b.all(), "nothing is sent")
			b.holds(t, all)
			l.has(t, all)
			require.Zero(t, m.left(), "nor is it in doubt")
		})
	}
}

// While the ledger can't be read nothing is sent, and no claim is left that would put the grants in doubt.
func TestLedgerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			l.unread = ledgerDown(nil)
			h := newRecording(t, b, m.as("w1"), l, change)
			errs := h.Handle(t.Context(), grants(1, 20))
			require.Len(t, errs, 20)
			for _, err := range errs {
				require.True(t, hongbao.IsOutage(err), "%v", err)
			}
			require.Zero(t, b.all())
			require.Zero(t, m.left())
			l.unread = nil
			require.Nil(t, h.Handle(t.Context(), grants(1, 20)))
			b.holds(t, grants(1, 20))
			l.has(t, grants(1, 20))
		})
	}
}

// The worker died after the ledger's commit: its claim is no doubt, even if the remote can tell nothing.
func TestKilledAfterTheLedger(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			all := grants(1, 5)
			require.Nil(t, newRecording(t, b, m.as("w1"), l, change).Handle(t.Context(), all))
			sent := b.all()
			require.Equal(t, 5, m.forgetAll())
			for i := range all { // as it was before they were completed
				_, err := m.as("w1").Claim(t.Context(), 0, newClaimID(), runs([]int64{all[i].Seq}), note{time.Now(), "prod"}.String())
				require.NoError(t, err)
			}
			m.died("w1")
			require.Nil(t, newRecording(t, b, m.as("w2"), l, change).Handle(t.Context(), all))
			require.Equal(t, sent, b.all())
			require.Zero(t, m.left())
		})
	}
}

// hung is a ledger that takes grants and never answers.
type hung struct {
	*books
	met atomic.Int64
}

func (l *hung) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	l.met.Add(1)
	<-ctx.Done()
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = hongbao.Outagef(hongbao.Unknown, "the ledger does not answer: %w", ctx.Err())
	}
	return errs
}

// The ledger hangs until the time is up: that the remote has credited the grants is noted all the same.
func TestLedgerThatHangs(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	b.forgets = true
	slow := &hung{books: l}
	cfg := testConfig(b.URL)
	neither(&cfg)
	cfg.ConnectTimeout, cfg.HeaderTimeout, cfg.Timeout, cfg.ClaimTime = time.Second, 2*time.Second, 3*time.Second, 4*time.Second
	h, err := New(cfg, m.as("w1"), campaigns{}, slow)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	errs := h.Handle(t.Context(), grants(1, 20))
	require.Len(t, errs, 20)
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err), "%v", err)
		require.NotContains(t, err.Error(), "could not be noted")
	}
	require.Positive(t, slow.met.Load())
	b.holds(t, grants(1, 20))
	m.died("w1")
	require.Nil(t, newRecording(t, b, m.as("w2"), l, neither).Handle(t.Context(), grants(1, 20)), "none of them goes to a person")
	b.holds(t, grants(1, 20))
	l.has(t, grants(1, 20))
	require.Zero(t, m.left())
}

// broken is a ledger that panics once the others of a call wait for it.
type broken struct {
	*books
	calls   atomic.Int64
	gathers func() bool
}

func (l *broken) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	call := l.calls.Add(1)
	if call == 2 {
		panic("out of order")
	}
	for end := time.Now().Add(20 * time.Second); call == 1 && !l.gathers() && time.Now().Before(end); runtime.Gosched() {
	}
	return l.books.Handle(ctx, grants)
}

// A panic of the ledger in the turn of one is no success of those that waited with it.
func TestLedgerThatPanics(t *testing.T) {
	t.Parallel()
	l := &broken{books: newBooks()}
	r := &recorder{ledger: l}
	l.gathers = func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.queue) == 4
	}
	var wg sync.WaitGroup
	var panics, failed, fine atomic.Int64
	for _, g := range grants(1, 5) {
		wg.Go(func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			switch errs := r.handle(t.Context(), []hongbao.Grant{g}); {
			case errs[0] == nil:
				fine.Add(1)
			case hongbao.IsOutage(errs[0]):
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int64{1, 1, 3}, []int64{fine.Load(), panics.Load(), failed.Load()}, "done, panicked, told that it failed")
	require.Len(t, l.held, 1)
	require.EqualValues(t, 2, l.calls.Load())
}

// twice is a client that loses the first answer to each new claim and asks again by itself.
type twice struct {
	*worker
	lost atomic.Int64
}

func (w *twice) Claim(ctx context.Context, shard int, id string, events []hongbao.SeqRange, payload string) (hongbao.ClaimAnswer, error) {
	a, err := w.worker.Claim(ctx, shard, id, events, payload)
	if err != nil || !a.Granted() {
		return a, err
	}
	w.lost.Add(1)
	return w.worker.Claim(ctx, shard, id, events, payload)
}

// The answer to a claim is lost: nothing was sent under it, and nobody has to decide.
func TestClaimAnsweredTwice(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			w := &twice{worker: m.as("w1")}
			h := newRecording(t, b, w, l, change)
			require.Nil(t, h.Handle(t.Context(), grants(1, 20)))
			require.Positive(t, w.lost.Load())
			b.holds(t, grants(1, 20))
			l.has(t, grants(1, 20))
			require.Zero(t, m.left())
			require.EqualValues(t, 20, h.Stats().Credited)
			require.Zero(t, h.Stats().Resolved)
		})
	}
}
