package remote

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// Redis loses settled grants, and they are delivered again. The ledger has recorded them, so nothing is sent to the
// remote.
func TestRedisLosesWhatWasSettled(t *testing.T) {
	t.Parallel()
	kinds := maps.Clone(kinds)
	kinds["both"] = func(*Config) {}
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.notIdempotent = true // it has no idempotency: it would book every request
			h := newHandler(t, b, l, change)
			all := grants(1, 20)
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(all[:10])))
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(all)), "ten settled grants and ten new ones")
			b.holds(t, all)
			l.has(t, all)
			require.Zero(t, l.left())

			sent := b.all()
			for what, change := range map[string]func(g *hongbao.Grant){
				"user": func(g *hongbao.Grant) { g.User = "thief" }, "seq": func(g *hongbao.Grant) { g.Seq += 100 },
				"shard": func(g *hongbao.Grant) { g.Shard++ },
			} {
				list := slices.Clone(all[:3])
				change(&list[1])
				for i := range list { // one by one, since a batch is of one shard
					errs := h.Handle(t.Context(), testkit.Batch(list[i:i+1]))
					if list[i].Packet == 2 {
						require.Len(t, errs, 1, what)
						require.ErrorIs(t, errs[0], ErrContradiction, what)
						require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), what)
					} else {
						require.Nil(t, errs, what)
					}
				}
			}
			require.Equal(t, sent, b.all(), "nothing is sent")
			b.holds(t, all)
			l.has(t, all)
			require.Zero(t, l.left(), "no credit is in doubt")
		})
	}
}

// While Begin fails, nothing is sent to the remote, and no pending row stays in the ledger.
func TestLedgerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			l.unread = ledgerDown(nil)
			h := newHandler(t, b, l, change)
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 20)))
			require.Len(t, errs, 20)
			for _, err := range errs {
				require.True(t, hongbao.IsOutage(err), "%v", err)
			}
			require.Zero(t, b.all())
			require.Zero(t, l.left())
			l.unread = nil
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 20))))
			b.holds(t, grants(1, 20))
			l.has(t, grants(1, 20))
		})
	}
}

// hung is a ledger whose Record does not return in time until well is set.
type hung struct {
	*fakeLedger
	met  atomic.Int64
	well atomic.Bool
}

func (l *hung) Record(ctx context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	if l.well.Load() {
		return l.fakeLedger.Record(ctx, batch)
	}
	l.met.Add(1)
	<-ctx.Done()
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = hongbao.Outagef(hongbao.ClassUnknown, "the ledger does not answer: %w", ctx.Err())
	}
	return errs
}

// The remote has credited the grants, but recording them in the ledger times out. The worker remembers the credits and
// records them when the ledger recovers.
func TestLedgerThatHangs(t *testing.T) {
	t.Parallel()
	b, slow := newBank(t), &hung{fakeLedger: newBooks()}
	b.notIdempotent = true
	h := newHandler(t, b, slow, neither, func(c *Config) {
		c.ConnectTimeout, c.HeaderTimeout, c.Timeout, c.ClaimTime = time.Second, 2*time.Second, 3*time.Second, 4*time.Second
	})
	errs := h.Handle(t.Context(), testkit.Batch(grants(1, 20)))
	require.Len(t, errs, 20)
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err), "%v", err)
	}
	require.Positive(t, slow.met.Load())
	b.holds(t, grants(1, 20))
	slow.well.Store(true)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 20))), "no person has to decide")
	b.holds(t, grants(1, 20))
	slow.has(t, grants(1, 20))
	require.Zero(t, slow.left())
}

// The ledger has the time of the first request. So the next worker knows that the remote may have forgotten the key,
// and does not send the request again.
func TestFirstRequestIsNotForgotten(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	once := func(c *Config) { repeats(c); c.Repeats = 0 }
	errs := newHandler(t, b, l, once).Handle(t.Context(), testkit.Batch(grants(1, 1)))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]), "%v", errs[0])
	require.Equal(t, 1, l.ages(25*time.Hour))
	b.mu.Lock()
	b.notIdempotent, b.answer = true, nil // the remote has forgotten the key
	b.mu.Unlock()
	for range 2 {
		errs = newHandler(t, b, l, repeats).Handle(t.Context(), testkit.Batch(grants(1, 1)))
		b.holds(t, grants(1, 1))
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
		require.ErrorContains(t, errs[0], "could pay twice")
		l.died()
	}
}
