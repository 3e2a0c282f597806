package remote

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// blind contains the remotes that would book a second request, with their configurations.
var blind = map[string]func(*Config){"neither": neither, "queryable": final}

// final configures a queryable remote whose "not found" counts as final soon.
func final(c *Config) { queryable(c); c.QueryFinal = c.ClaimTime }

// The grant reaches another worker while the first request is running. It is not sent again, however the request ends.
func TestAnotherWorkerWhileSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		for end, killed := range map[string]bool{"answered": false, "killed": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				b, l, first := newBank(t), newBooks(), make(chan []error, 1)
				b.forgets = true
				arrived, answered := make(chan struct{}, 1), make(chan struct{})
				answer := sync.OnceFunc(func() { close(answered) })
				t.Cleanup(answer)
				b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
					c = b.book(c)
					arrived <- struct{}{}
					<-answered
					b.say(w, http.StatusCreated, c)
				})
				h := newHandler(t, b, l, change)
				go func() { first <- h.Handle(t.Context(), grants(1, 1)) }()
				select {
				case <-arrived:
				case <-time.After(patient):
					t.Fatal("nothing was sent")
				}
				b.set(nil)
				other := newHandler(t, b, l, change)
				require.True(t, hongbao.IsHeld(other.Handle(t.Context(), grants(1, 1))[0]))
				if killed { // the request never ends
					l.fails(ledgerDown)
				}
				answer()
				require.Equal(t, killed, <-first != nil)
				l.fails(nil)
				l.ages(time.Hour)
				for range 2 {
					errs := other.Handle(t.Context(), grants(1, 1))
					if killed && name == "neither" {
						require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
						require.ErrorContains(t, errs[0], "never sent twice")
						require.NotErrorIs(t, errs[0], ErrContradiction)
						continue
					}
					require.Nil(t, errs)
					l.has(t, grants(1, 1))
				}
				b.holds(t, grants(1, 1))
				require.Equal(t, 1, b.all())
			})
		}
	}
}

// The worker died before it sent anything. A handler that can query the remote sends the grant again, once. Otherwise
// a person decides.
func TestKilledBeforeSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, l := newBank(t), newBooks()
		b.forgets = true
		_, _, err := l.Begin(t.Context(), payment.Asking{Owner: "w0", Batch: 1}, grants(1, 1))
		require.NoError(t, err)
		l.ages(time.Hour)
		errs := newHandler(t, b, l, change).Handle(t.Context(), grants(1, 2))
		if name == "queryable" {
			require.Nil(t, errs)
			b.holds(t, grants(1, 2))
			l.has(t, grants(1, 2))
			require.Zero(t, l.left())
		} else {
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]))
			require.NoError(t, errs[1])
			b.holds(t, grants(2, 2))
			require.Equal(t, 1, l.left())
		}
	}
}

// A grant that was certainly not booked leaves no row, and another worker sends it.
func TestNothingIsPendingOfWhatWasNotBooked(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		for status, class := range map[int]hongbao.Class{http.StatusForbidden: hongbao.ClassTransient,
			http.StatusGone: hongbao.ClassPermanent} {
			b, l := newBank(t), newBooks()
			b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(status) })
			errs := newHandler(t, b, l, change).Handle(t.Context(), grants(1, 1))
			require.Equal(t, class, hongbao.ClassOf(errs[0]), name)
			require.Equal(t, 1, b.all())
			require.Zero(t, l.left())
			b.set(nil)
			require.Nil(t, newHandler(t, b, l, change).Handle(t.Context(), grants(1, 1)), name)
			b.holds(t, grants(1, 1))
			require.Zero(t, l.left())
		}
	}
}

// The ledger's answer to the beginning of a request is lost. Nothing was sent, and the same worker knows this when the
// grant comes back.
func TestBeginWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, l := newBank(t), newBooks()
		l.unread, l.noted = hongbao.Outagef(hongbao.ClassUnknown, "the answer to COMMIT is lost"), true
		h := newHandler(t, b, l, change)
		for range 3 {
			errs := h.Handle(t.Context(), grants(1, 20))
			require.Len(t, errs, 20)
			for _, err := range errs {
				require.True(t, hongbao.IsOutage(err), "%v", err)
			}
			require.Zero(t, b.all(), name)
			require.Equal(t, 20, l.left(), "they were noted all the same")
		}
		l.unread = nil
		require.Nil(t, h.Handle(t.Context(), grants(1, 20)), name)
		b.holds(t, grants(1, 20))
		l.has(t, grants(1, 20))
		require.Equal(t, 20, b.all())
	}
}

// The row of a grant that was not booked can't be deleted. The worker that knows this sends the grant again when
// possible.
func TestRowThatStays(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusGone) })
	l.unforgotten = ledgerDown(nil)
	h := newHandler(t, b, l, neither)
	for range 3 {
		errs := h.Handle(t.Context(), grants(1, 1))
		require.True(t, hongbao.IsOutage(errs[0]), "no letter is written while its row exists: %v", errs[0])
	}
	require.Equal(t, 1, l.left())
	l.unforgotten = nil
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(h.Handle(t.Context(), grants(1, 1))[0]))
	require.Zero(t, l.left())
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), grants(1, 1)))
	b.holds(t, grants(1, 1))
}

// Two events of one packet: only one of them is sent.
func TestTwoEventsOfOnePacket(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.forgets = true
	list := append(grants(1, 2), grants(1, 1)...)
	list[2].Seq, list[2].User = 77, "thief"
	h := newHandler(t, b, l, neither)
	errs := h.Handle(t.Context(), list)
	require.Equal(t, []error{nil, nil}, errs[:2])
	require.ErrorIs(t, errs[2], ErrContradiction)
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(h.Handle(t.Context(), grants(3, 3))[0]))
	other := grants(3, 3)
	other[0].Seq, other[0].User = 78, "thief"
	require.ErrorIs(t, h.Handle(t.Context(), other)[0], ErrContradiction, "the first one is pending")
	b.holds(t, grants(1, 3))
}

// No worker receives the events of the grants in doubt any more. The sweep queries the remote and sends nothing.
func TestSweep(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.forgets = true
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		if c.Amount != 102 {
			b.book(c)
		}
		drop(w)
	})
	h := newHandler(t, b, l, final, func(c *Config) { c.Repeats = 0 })
	b.deaf.Store(true)
	require.Len(t, h.Handle(t.Context(), grants(1, 3)), 3)
	left, err := h.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, left, "their owner's time is not over")
	require.Equal(t, 3, l.left())
	l.died()
	left, err = h.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, left, "the answers are inconclusive")
	b.deaf.Store(false)
	left, err = h.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left, "what was sent at the end of its owner's time can still take effect")
	l.died()
	left, err = h.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.Equal(t, 3, b.all(), "nothing was sent")
	require.Zero(t, l.left())
	l.has(t, append(grants(1, 1), grants(3, 3)...))
	l.unread = ledgerDown(nil)
	_, err = h.Sweep(t.Context())
	require.True(t, hongbao.IsOutage(err))
}

// stopped is the context of a paused process: its deadline has passed, and no timer has fired.
type stopped struct{ context.Context }

func (stopped) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// A worker begins a request, is paused for longer than its time, and wakes before the request is sent. It does not
// send it.
func TestStoppedBeforeSending(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		b, l := newBank(t), newBooks()
		h := newHandler(t, b, l, change)
		for _, err := range h.Handle(stopped{t.Context()}, grants(1, 3)) {
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%s: %v", name, err)
			require.ErrorIs(t, err, errAborted)
		}
		require.Zero(t, b.all(), name)
		require.Zero(t, l.left())
		require.Nil(t, h.Handle(t.Context(), grants(1, 3)))
		b.holds(t, grants(1, 3))
	}
}
