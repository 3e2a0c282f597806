package remote

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// RecordBooked records only what the remote has booked, whether or not the credit is pending. It sends nothing.
func TestRecordBooked(t *testing.T) {
	t.Parallel()
	final := func(c *Config) { c.QueryFinal = time.Minute }
	for name, pending := range map[string]bool{"pending": true, "unknown to the ledger": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			g := grants(1, 1)[0]
			sent := 0
			if pending {
				b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
				require.NotNil(t, newHandler(t, b, l, func(c *Config) { c.Repeats = 0 }).Handle(t.Context(), testkit.Batch(grants(1, 1))))
				require.True(t, hongbao.IsWaiting(newHandler(t, b, l, final).RecordBooked(t.Context(), g)), "its worker may be active")
				l.died()
				sent = b.all()
			}
			h := newHandler(t, b, l, final)
			require.Error(t, h.RecordBooked(t.Context(), g), "the remote does not have it")
			require.Equal(t, pending, l.left() == 1, "a request may still arrive")
			b.failsQueries.Store(true)
			require.Error(t, h.RecordBooked(t.Context(), g))
			b.failsQueries.Store(false)
			l.ages(time.Hour)
			err := h.RecordBooked(t.Context(), g)
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, "nothing was recorded")
			require.Zero(t, l.left(), "no request can arrive any more")
			b.book(credit{Reference: Key("prod", "rain", 1), Account: g.User, Currency: "CNY", Amount: g.Amount})
			other := g
			other.User = "thief"
			require.ErrorIs(t, h.RecordBooked(t.Context(), other), ErrContradiction)
			l.has(t, nil)
			for range 2 {
				require.NoError(t, h.RecordBooked(t.Context(), g))
				l.has(t, grants(1, 1))
			}
			require.ErrorIs(t, h.RecordBooked(t.Context(), other), ErrContradiction)
			require.Equal(t, sent, b.all())
		})
	}
}

// A packet without a value has no credit, so there is nothing to record.
func TestRecordBookedWithoutAValue(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	g := grants(900, 900)[0]
	g.Amount = 0
	require.ErrorContains(t, newHandler(t, b, l).RecordBooked(t.Context(), g), "has no value")
	g.Amount = 7
	require.ErrorIs(t, newHandler(t, b, l).RecordBooked(t.Context(), g), ErrContradiction)
	l.has(t, nil)
}
