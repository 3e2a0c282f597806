package remote

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// verified configures a outcome that a person has just verified.
func verified(v CreditOutcome) func(*Config) {
	return func(c *Config) {
		if c.Verified = v; v == NotSent {
			c.VerifiedAt = time.Now()
		}
	}
}

// A remote that is not queryable has booked two of four grants and never answered. Only a person can decide. A repeat
// of the person's decision changes nothing.
func TestToldByAPerson(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.notIdempotent = true
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		if c.Amount <= 102 {
			b.book(c)
		}
		drop(w)
	})
	all := grants(1, 4)
	errs := newHandler(t, b, l, neither).Handle(t.Context(), testkit.Batch(all))
	for _, err := range errs {
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
	}
	l.died()
	b.set(nil)
	require.Equal(t, 4, l.ages(time.Hour))
	again := newHandler(t, b, l, neither).Handle(t.Context(), testkit.Batch(all))
	require.Len(t, again, 4)
	require.Equal(t, 4, b.all(), "nothing is sent without the person's outcome")
	l.died()

	for range 2 { // the command may be killed and run again
		require.Nil(t, newHandler(t, b, l, neither, verified(Done)).Handle(t.Context(), testkit.Batch(all[:2])))
	}
	require.Equal(t, 4, b.all())
	l.has(t, all[:2])
	for range 2 {
		require.Nil(t, newHandler(t, b, l, neither, verified(NotSent)).Handle(t.Context(), testkit.Batch(all[2:])))
	}
	require.Equal(t, 6, b.all())
	b.holds(t, all)
	l.has(t, all)
	require.Zero(t, l.left())
}

// A person's wrong outcome does no harm where the remote or the ledger can show the truth.
func TestToldWhatIsNotSo(t *testing.T) {
	t.Parallel()
	dark := func(t *testing.T, change func(*Config)) (*bank, *fakeLedger) {
		t.Helper()
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		h := newHandler(t, b, l, change, func(c *Config) { c.Repeats = 0 })
		b.failsQueries.Store(true)
		require.NotNil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 1))))
		b.failsQueries.Store(false)
		l.died()
		b.set(nil)
		l.ages(time.Hour)
		return b, l
	}
	t.Run("the remote repeats", func(t *testing.T) {
		t.Parallel()
		for _, v := range []CreditOutcome{Done, NotSent} {
			b, l := dark(t, repeats)
			require.Nil(t, newHandler(t, b, l, repeats, verified(v)).Handle(t.Context(), testkit.Batch(grants(1, 1))))
			b.holds(t, grants(1, 1))
			l.has(t, grants(1, 1))
			require.Zero(t, l.left())
		}
	})
	t.Run("the remote can be asked", func(t *testing.T) {
		t.Parallel()
		b, l := dark(t, queryable)
		b.notIdempotent = true
		require.Nil(t, newHandler(t, b, l, queryable, verified(NotSent)).Handle(t.Context(), testkit.Batch(grants(1, 1))))
		b.holds(t, grants(1, 1))
		l.has(t, grants(1, 1))
		require.Equal(t, 1, b.all())
	})
	t.Run("the ledger has the packet for another", func(t *testing.T) {
		t.Parallel()
		for _, v := range []CreditOutcome{Done, NotSent} {
			b, l := newBank(t), newBooks()
			list := grants(1, 1)
			require.Nil(t, newHandler(t, b, l, neither).Handle(t.Context(), testkit.Batch(list)))
			list[0].User = "thief"
			errs := newHandler(t, b, l, neither, verified(v)).Handle(t.Context(), testkit.Batch(list))
			require.ErrorIs(t, errs[0], ErrContradiction)
			b.holds(t, grants(1, 1))
			l.has(t, grants(1, 1))
		}
	})
}

// A grant is sent again after a person's outcome, and its answer is lost. It is in doubt again: the same outcome does
// not cover the new request.
func TestToldBeforeItWasSent(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, l := newBank(t), newBooks()
		b.notIdempotent = true
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
		require.NotNil(t, newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 1))))
		l.died()
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		l.ages(time.Hour)
		word := verified(NotSent)
		cfg := Config{}
		word(&cfg)
		same := func(c *Config) { c.Verified, c.VerifiedAt = cfg.Verified, cfg.VerifiedAt }
		for range 4 {
			errs := newHandler(t, b, l, change, same).Handle(t.Context(), testkit.Batch(grants(1, 1)))
			b.holds(t, grants(1, 1))
			require.Equal(t, 2, b.all(), "%s: the lost request, and one after the outcome", name)
			if name == "neither" {
				require.Len(t, errs, 1)
				require.NotEqual(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]))
			} else {
				require.Nil(t, errs)
			}
		}
	}
}

// A person's outcome is older than a later request of a worker that took the grant over. The remote may have booked
// that request, so the outcome does not count.
func TestToldBeforeItWasTakenOver(t *testing.T) {
	t.Parallel()
	for _, ago := range []time.Duration{6 * time.Hour, 5*time.Hour - testClaimTime/2} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
		once := func(c *Config) { repeats(c); c.Repeats = 0 }
		require.NotNil(t, newHandler(t, b, l, once).Handle(t.Context(), testkit.Batch(grants(1, 1))))
		l.ages(20 * time.Hour)
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		require.NotNil(t, newHandler(t, b, l, once).Handle(t.Context(), testkit.Batch(grants(1, 1))))
		l.ages(5 * time.Hour) // the remote may have forgotten the first key by now
		b.set(nil)
		b.notIdempotent = true
		word := func(c *Config) { c.Verified, c.VerifiedAt = NotSent, time.Now().Add(-ago) }
		errs := newHandler(t, b, l, once, word).Handle(t.Context(), testkit.Batch(grants(1, 1)))
		require.Len(t, errs, 1, "%s ago", ago)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
		b.holds(t, grants(1, 1))
	}
}

// Without QueryFinal, the remote's "not found" counts only after a person has verified it. Then the credit is sent
// once.
func TestToldThatNothingIsUnderWay(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.notIdempotent = true
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
	require.NotNil(t, newHandler(t, b, l, queryable).Handle(t.Context(), testkit.Batch(grants(1, 1))))
	l.died()
	b.set(nil)
	l.ages(time.Hour)
	require.NotNil(t, newHandler(t, b, l, queryable).Handle(t.Context(), testkit.Batch(grants(1, 1))))
	require.Equal(t, 1, b.all())
	l.died()
	require.Nil(t, newHandler(t, b, l, queryable, verified(NotSent)).Handle(t.Context(), testkit.Batch(grants(1, 1))))
	b.holds(t, grants(1, 1))
	l.has(t, grants(1, 1))
	require.Zero(t, l.left())
}
