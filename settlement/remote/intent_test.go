package remote

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// blind are the remotes that would book a second request, and their handlers.
var blind = map[string]func(*Config){"neither": neither, "queryable": final}

// final is a queryable remote whose "not found" is believed soon.
func final(c *Config) { queryable(c); c.QueryFinal = c.ClaimTime }

// stuck is a worker whose first request was booked and is not answered; Redis has lost its claim meanwhile.
type stuck struct {
	b      *bank
	m      *memClaims
	l      *books
	change func(*Config)
	answer func() // lets the answer go
	errs   chan []error
}

func newStuck(t *testing.T, change func(*Config)) *stuck {
	t.Helper()
	s := &stuck{b: newBank(t), m: newClaims(), l: newBooks(), change: change, errs: make(chan []error, 1)}
	s.b.forgets = true
	arrived, answered := make(chan struct{}, 1), make(chan struct{})
	s.answer = sync.OnceFunc(func() { close(answered) })
	t.Cleanup(s.answer)
	s.b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		c = s.b.book(c)
		arrived <- struct{}{}
		<-answered
		s.b.say(w, http.StatusCreated, c)
	})
	h := newRecording(t, s.b, s.m.as("w1"), s.l, change)
	go func() { s.errs <- h.Handle(t.Context(), grants(1, 1)) }()
	select {
	case <-arrived:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was sent")
	}
	require.Equal(t, 1, s.m.left())
	require.Zero(t, s.m.forgetAll(), "a failover: the claim is gone and nothing is done")
	s.b.set(nil)
	return s
}

func (s *stuck) again(t *testing.T, change ...func(*Config)) error {
	t.Helper()
	errs := newRecording(t, s.b, s.m.as("w2"), s.l, append([]func(*Config){s.change}, change...)...).Handle(t.Context(), grants(1, 1))
	if errs == nil {
		return nil
	}
	return errs[0]
}

// Redis loses the claim while the first request is under way, and the grant comes to another worker: it is not sent again.
func TestClaimLostWhileSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		t.Run(name+", answered", func(t *testing.T) {
			t.Parallel()
			s := newStuck(t, change)
			err := s.again(t)
			s.b.holds(t, grants(1, 1))
			require.Equal(t, hongbao.Transient, hongbao.ClassOf(err), "%v", err)
			require.ErrorIs(t, err, errLostClaim, "the first worker may be at it still")
			s.answer()
			require.Nil(t, <-s.errs)
			s.m.forgetAll()
			require.NoError(t, s.again(t), "the ledger has it")
			s.b.holds(t, grants(1, 1))
			s.l.has(t, grants(1, 1))
			require.Equal(t, 1, s.b.all())
			require.Zero(t, s.m.left())
		})
		t.Run(name+", killed", func(t *testing.T) {
			t.Parallel()
			s := newStuck(t, change)
			s.l.fails(ledgerDown) // the first worker never comes to an end
			s.answer()
			require.Len(t, <-s.errs, 1)
			s.m.forgetAll()
			s.l.fails(nil)
			require.Equal(t, 1, s.l.ages(time.Hour))
			for range 2 {
				err := s.again(t)
				s.b.holds(t, grants(1, 1))
				if name == "queryable" {
					require.NoError(t, err)
					s.l.has(t, grants(1, 1))
					continue
				}
				require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err), "%v", err)
				require.ErrorContains(t, err, "never sent twice")
				require.NotErrorIs(t, err, ErrContradiction)
			}
			s.b.holds(t, grants(1, 1))
			require.Equal(t, 1, s.b.all())
			require.Zero(t, s.m.left(), "nothing was sent under another claim")
		})
	}
}

// A lost claim under which nothing was booked: who can ask sends it anew, once; else a person decides.
func TestClaimLostBeforeSending(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, m, l := newBank(t), newClaims(), newBooks()
		b.forgets = true
		by, _, err := l.Intend(t.Context(), &grants(1, 1)[0], "h1")
		require.NoError(t, err)
		require.Equal(t, "h1", by)
		l.ages(time.Hour)
		errs := newRecording(t, b, m.as("w2"), l, change).Handle(t.Context(), grants(1, 2))
		if name == "queryable" {
			require.Nil(t, errs)
			b.holds(t, grants(1, 2))
			l.has(t, grants(1, 2))
		} else {
			require.Equal(t, hongbao.Conflict, hongbao.ClassOf(errs[0]))
			require.NoError(t, errs[1])
			b.holds(t, grants(2, 2))
		}
		require.Zero(t, m.left(), name)
	}
}

// What was certainly not booked leaves no intent behind: another worker sends it.
func TestIntentOfWhatWasNotBooked(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		for status, class := range map[int]hongbao.Class{http.StatusForbidden: hongbao.Transient, http.StatusGone: hongbao.Permanent} {
			b, m, l := newBank(t), newClaims(), newBooks()
			b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(status) })
			errs := newRecording(t, b, m.as("w1"), l, change).Handle(t.Context(), grants(1, 1))
			require.Equal(t, class, hongbao.ClassOf(errs[0]), name)
			require.Equal(t, 1, b.all())
			require.Empty(t, l.intents)
			b.set(nil)
			require.Nil(t, newRecording(t, b, m.as("w2"), l, change).Handle(t.Context(), grants(1, 1)), name)
			b.holds(t, grants(1, 1))
			require.Len(t, l.intents, 1, "it stays beside the grant")
		}
	}
}

// The ledger's answer to an intent is lost: nothing was sent, which the same worker knows when it comes back.
func TestIntentWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, change := range blind {
		b, m, l := newBank(t), newClaims(), newBooks()
		fail := ledgerDown(nil)
		l.intend = func() error { return fail }
		h := newRecording(t, b, m.as("w1"), l, change)
		for range 3 {
			errs := h.Handle(t.Context(), grants(1, 20))
			require.Len(t, errs, 20)
			for _, err := range errs {
				require.True(t, hongbao.IsOutage(err), "%v", err)
			}
			require.Zero(t, b.all(), name)
			require.Zero(t, m.left())
			require.Len(t, l.intents, 20, "they were noted all the same")
		}
		fail = nil
		require.Nil(t, h.Handle(t.Context(), grants(1, 20)))
		b.holds(t, grants(1, 20))
		l.has(t, grants(1, 20))
		require.Equal(t, 20, b.all())
	}
}

// An intent that can't be removed is taken up again by the worker that knows that nothing was booked.
func TestIntentThatStays(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusForbidden) })
	fails := 0
	l.forgets = func() error { fails++; return ledgerDown(nil) }
	h := newRecording(t, b, m.as("w1"), l, neither)
	for range 2 {
		errs := h.Handle(t.Context(), grants(1, 1))
		require.Equal(t, hongbao.Transient, hongbao.ClassOf(errs[0]), "%v", errs[0])
		require.ErrorContains(t, errs[0], "could not be removed")
	}
	require.Equal(t, 2, fails)
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), grants(1, 1)))
	b.holds(t, grants(1, 1))
	require.Zero(t, m.left())
}
