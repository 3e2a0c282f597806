package remote

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// blind has configurations for remotes that would book a second request.
var blind = map[string]func(*Config){"neither": neither, "queryable": final}

// final configures a queryable remote with the shortest QueryFinal, after which "not found" is final.
func final(c *Config) { queryable(c); c.QueryFinal = c.ClaimTime }

// A grant is delivered to another worker while the first request is running. The other worker does not send it again,
// whether the first worker finishes or dies.
func TestAnotherWorkerWhileSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		for end, killed := range map[string]bool{"answered": false, "killed": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				b, l, first := newBank(t), newBooks(), make(chan []error, 1)
				b.notIdempotent = true
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
				go func() { first <- h.Handle(t.Context(), testkit.Batch(grants(1, 1))) }()
				select {
				case <-arrived:
				case <-time.After(patient):
					t.Fatal("nothing was sent")
				}
				b.set(nil)
				other := newHandler(t, b, l, change)
				require.True(t, hongbao.IsWaiting(other.Handle(t.Context(), testkit.Batch(grants(1, 1)))[0]))
				if killed { // the first worker can't record the result
					l.fails(ledgerDown)
				}
				answer()
				require.Equal(t, killed, <-first != nil)
				l.fails(nil)
				l.ages(time.Hour)
				for range 2 {
					errs := other.Handle(t.Context(), testkit.Batch(grants(1, 1)))
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

// A worker dies after Begin and before it sends the request. If the remote is queryable, the next worker sends the
// grant once. Otherwise a person decides.
func TestKilledBeforeSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, l := newBank(t), newBooks()
		b.notIdempotent = true
		_, _, err := l.Begin(t.Context(), payment.CreditCall{Owner: "w0", Batch: 1}, testkit.Batch(grants(1, 1)))
		require.NoError(t, err)
		l.ages(time.Hour)
		errs := newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 2)))
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

// A grant that is certainly not booked leaves no pending row, and another worker can send it.
func TestNothingIsPendingOfWhatWasNotBooked(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		for status, class := range map[int]hongbao.Class{http.StatusForbidden: hongbao.ClassTransient,
			http.StatusGone: hongbao.ClassPermanent} {
			b, l := newBank(t), newBooks()
			b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(status) })
			errs := newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 1)))
			require.Equal(t, class, hongbao.ClassOf(errs[0]), name)
			require.Equal(t, 1, b.all())
			require.Zero(t, l.left())
			b.set(nil)
			require.Nil(t, newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 1))), name)
			b.holds(t, grants(1, 1))
			require.Zero(t, l.left())
		}
	}
}

// The ledger's answer to Begin is lost, so the rows are stored but nothing is sent. When the grants are delivered
// again, the same worker still knows that nothing was sent.
func TestBeginWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, l := newBank(t), newBooks()
		l.unread, l.noted = hongbao.Outagef(hongbao.ClassUnknown, "the answer to COMMIT is lost"), true
		h := newHandler(t, b, l, change)
		for range 3 {
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 20)))
			require.Len(t, errs, 20)
			for _, err := range errs {
				require.True(t, hongbao.IsOutage(err), "%v", err)
			}
			require.Zero(t, b.all(), name)
			require.Equal(t, 20, l.left(), "they are pending all the same")
		}
		l.unread = nil
		require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 20))), name)
		b.holds(t, grants(1, 20))
		l.has(t, grants(1, 20))
		require.Equal(t, 20, b.all())
	}
}

// A credit was not booked, but its pending row can't be deleted. The worker keeps this knowledge, deletes the row
// later, and can then send the grant again.
func TestRowThatStays(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusGone) })
	l.unforgotten = ledgerDown(nil)
	h := newHandler(t, b, l, neither)
	for range 3 {
		errs := h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
		require.True(t, hongbao.IsOutage(errs[0]), "it gets no dead letter while its row exists: %v", errs[0])
	}
	require.Equal(t, 1, l.left())
	l.unforgotten = nil
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(h.Handle(t.Context(), testkit.Batch(grants(1, 1)))[0]))
	require.Zero(t, l.left())
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 1))))
	b.holds(t, grants(1, 1))
}

// If two events have the same packet, only the first is sent. The second is a contradiction.
func TestTwoEventsOfOnePacket(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.notIdempotent = true
	list := append(grants(1, 2), grants(1, 1)...)
	list[2].Seq, list[2].User = 77, "thief"
	h := newHandler(t, b, l, neither)
	errs := h.Handle(t.Context(), testkit.Batch(list))
	require.Equal(t, []error{nil, nil}, errs[:2])
	require.ErrorIs(t, errs[2], ErrContradiction)
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(h.Handle(t.Context(), testkit.Batch(grants(3, 3)))[0]))
	other := grants(3, 3)
	other[0].Seq, other[0].User = 78, "thief"
	require.ErrorIs(t, h.Handle(t.Context(), testkit.Batch(other))[0], ErrContradiction, "the first event is pending")
	b.holds(t, grants(1, 3))
}

// The remote has booked a credit, but the ledger was down, so only this process knows it. Then another event of the
// same packet comes. It is a contradiction: the ledger must not record it as paid, and the first grant stays pending.
func TestAnotherEventOfABookedPacket(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			h := newHandler(t, b, l, change)
			l.fails(ledgerDown)
			require.True(t, hongbao.IsOutage(h.Handle(t.Context(), testkit.Batch(grants(3, 3)))[0]))
			l.fails(nil)
			other := grants(3, 3)
			other[0].Seq, other[0].User = 78, "thief"
			for range 2 {
				errs := h.Handle(t.Context(), testkit.Batch(other))
				require.Len(t, errs, 1)
				require.ErrorIs(t, errs[0], ErrContradiction)
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]))
			}
			require.Equal(t, 1, l.left(), "the first grant is still pending")
			l.has(t, nil)
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(3, 3))))
			l.has(t, grants(3, 3))
			require.Zero(t, l.left())
			b.holds(t, grants(3, 3))
			require.ErrorIs(t, h.Handle(t.Context(), testkit.Batch(other))[0], ErrContradiction)
			require.Equal(t, 1, b.all())
		})
	}
}

// Grants in doubt are not delivered any more. Sweep resolves them by queries, and sends no credit.
func TestSweep(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.notIdempotent = true
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		if c.Amount != 102 {
			b.book(c)
		}
		drop(w)
	})
	h := newHandler(t, b, l, final, func(c *Config) { c.Repeats = 0 })
	b.failsQueries.Store(true)
	require.Len(t, h.Handle(t.Context(), testkit.Batch(grants(1, 3))), 3)
	left, err := h.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, left, "the owner's ClaimTime is not over")
	require.Equal(t, 3, l.left())
	l.died()
	left, err = h.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, left, "the answers are inconclusive")
	b.failsQueries.Store(false)
	left, err = h.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left, "QueryFinal is not over for the credit that was not found")
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

// A sweep, or a person's outcome, has listed a pending credit. Before its row is deleted, the credit's worker requests
// it again, and the answer is lost. The row stays, because "not booked" is older than that request.
func TestRequestedAgainMeanwhile(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"outcome", "sweep", "sweep that can't delete"} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
		h := newHandler(t, b, l, func(c *Config) { c.Repeats, c.QueryFinal = 0, time.Minute })
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(h.Handle(t.Context(), testkit.Batch(grants(1, 1)))[0]))
		l.ages(2 * time.Minute)
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		var errs []error
		again := func() { errs = h.Handle(t.Context(), testkit.Batch(grants(1, 1))) }
		if how != "outcome" {
			b.afterQuery(func() {
				if again(); how != "sweep" {
					l.unforgotten = ledgerDown(nil)
				}
			})
			left, err := h.Sweep(t.Context())
			require.Equal(t, how != "sweep", hongbao.IsOutage(err), "%v", err)
			require.Zero(t, left)
		} else {
			rows, err := l.Pending(t.Context(), 0, hongbao.Grant{}, 1)
			require.NoError(t, err)
			again()
			err = newHandler(t, b, l, verified(NotSent)).Unbook(t.Context(), rows[0])
			require.ErrorContains(t, err, "run this again")
		}
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]), "%v", errs)
		b.holds(t, grants(1, 1))
		l.unforgotten = nil
		require.Equal(t, 1, l.left(), "%s: the answer to the second request is lost", how)
		b.mu.Lock()
		b.notIdempotent, b.answer = true, nil // it forgets the key
		b.mu.Unlock()
		l.ages(25 * time.Hour)
		require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 1))))
		b.holds(t, grants(1, 1)) // once
		l.has(t, grants(1, 1))
	}
}

// afterQuery makes the bank call do once, after it has looked a credit up and before it answers.
func (b *bank) afterQuery(do func()) {
	good := b.Config.Handler
	var met atomic.Bool
	b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !met.CompareAndSwap(false, true) {
			good.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		good.ServeHTTP(answer, r)
		do()
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// stopped is the context of a process that was paused: its deadline has passed, but its timer has not fired yet.
type stopped struct{ context.Context }

func (stopped) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// A worker is paused after Begin, until its ClaimTime is over. When it continues, it must not send the request.
func TestStoppedBeforeSending(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		b, l := newBank(t), newBooks()
		h := newHandler(t, b, l, change)
		for _, err := range h.Handle(stopped{t.Context()}, testkit.Batch(grants(1, 3))) {
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%s: %v", name, err)
			require.ErrorIs(t, err, httpsink.ErrLate)
		}
		require.Zero(t, b.all(), name)
		require.Zero(t, l.left())
		require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 3))))
		b.holds(t, grants(1, 3))
	}
}
