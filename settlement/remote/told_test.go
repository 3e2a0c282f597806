package remote

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// told is what a person says, who has just found it out.
func told(v Verdict) func(*Config) {
	return func(c *Config) {
		if c.Told = v; v == NotSent {
			c.ToldAt = time.Now()
		}
	}
}

// A remote that can tell nothing booked the first two grants, and not the others, and never answered. Nobody but a person can
// decide; what he says is done once, with the claim and without it.
func TestToldByAPerson(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"claims stand": false, "Redis has lost them": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			b.forgets = true
			b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
				if c.Amount <= 102 {
					b.book(c)
				}
				drop(w)
			})
			all := grants(1, 4)
			errs := newRecording(t, b, m.as("w1"), l, neither).Handle(t.Context(), all)
			for _, err := range errs {
				require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err), "%v", err)
			}
			for _, g := range all { // they are dead letters
				m.done[g.Seq] = true
			}
			if lost {
				require.Equal(t, 4, m.forgetAll())
			}
			m.died("w1")
			b.set(nil)
			require.Equal(t, 4, l.ages(time.Hour))
			again := newRecording(t, b, m.requeues("p1"), l, neither).Handle(t.Context(), all)
			require.Len(t, again, 4)
			require.Equal(t, 4, b.all(), "without a word nothing is sent")

			for range 2 { // a command that is killed runs again
				require.Nil(t, newRecording(t, b, m.requeues("p1"), l, neither, told(Done)).Handle(t.Context(), all[:2]))
			}
			require.Equal(t, 4, b.all())
			l.has(t, all[:2])
			for range 2 {
				require.Nil(t, newRecording(t, b, m.requeues("p1"), l, neither, told(NotSent)).Handle(t.Context(), all[2:]))
			}
			require.Equal(t, 6, b.all())
			b.holds(t, all)
			l.has(t, all)
			require.Zero(t, m.left())
		})
	}
}

// A person's word counts only where nobody else can tell.
func TestToldWhatIsNotSo(t *testing.T) {
	t.Parallel()
	dark := func(t *testing.T, change func(*Config)) (*bank, *memClaims, *books) {
		t.Helper()
		b, m, l := newBank(t), newClaims(), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		h := newRecording(t, b, m.as("w1"), l, change, func(c *Config) { c.Repeats = 0 })
		b.deaf.Store(true)
		require.NotNil(t, h.Handle(t.Context(), grants(1, 1)))
		b.deaf.Store(false)
		m.died("w1")
		b.set(nil)
		l.ages(time.Hour)
		return b, m, l
	}
	t.Run("the remote repeats", func(t *testing.T) {
		t.Parallel()
		for _, v := range []Verdict{Done, NotSent} {
			b, m, l := dark(t, repeats)
			require.Nil(t, newRecording(t, b, m.requeues("p1"), l, repeats, told(v)).Handle(t.Context(), grants(1, 1)))
			b.holds(t, grants(1, 1))
			l.has(t, grants(1, 1))
			require.Zero(t, m.left())
		}
	})
	t.Run("the remote can be asked", func(t *testing.T) {
		t.Parallel()
		b, m, l := dark(t, queryable)
		b.forgets = true
		require.Nil(t, newRecording(t, b, m.requeues("p1"), l, queryable, told(NotSent)).Handle(t.Context(), grants(1, 1)))
		b.holds(t, grants(1, 1))
		l.has(t, grants(1, 1))
		require.Equal(t, 1, b.all())
	})
	t.Run("it was noted", func(t *testing.T) {
		t.Parallel()
		b, m, l := newBank(t), newClaims(), newBooks()
		b.forgets = true
		l.fails(ledgerDown)
		require.NotNil(t, newRecording(t, b, m.as("w1"), l, neither).Handle(t.Context(), grants(1, 1)))
		l.fails(nil)
		m.died("w1")
		require.Nil(t, newRecording(t, b, m.requeues("p1"), l, neither, told(NotSent)).Handle(t.Context(), grants(1, 1)))
		b.holds(t, grants(1, 1))
		l.has(t, grants(1, 1))
	})
	t.Run("the ledger has the packet for another", func(t *testing.T) {
		t.Parallel()
		for _, v := range []Verdict{Done, NotSent} {
			b, m, l := newBank(t), newClaims(), newBooks()
			list := grants(1, 1)
			require.Nil(t, newRecording(t, b, m.as("w1"), l, neither).Handle(t.Context(), list))
			m.forgetAll()
			list[0].User = "thief"
			errs := newRecording(t, b, m.requeues("p1"), l, neither, told(v)).Handle(t.Context(), list)
			require.ErrorIs(t, errs[0], ErrContradiction)
			b.holds(t, grants(1, 1))
			l.has(t, grants(1, 1))
		}
	})
}

// What is sent on a person's word and not answered is in doubt anew: the word was about what was before, however often it is repeated,
// and whatever Redis has lost meanwhile.
func TestToldBeforeItWasSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"neither": neither, "queryable": queryable} {
		b, m, l := newBank(t), newClaims(), newBooks()
		b.forgets = true
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
		require.NotNil(t, newRecording(t, b, m.as("w1"), l, change).Handle(t.Context(), grants(1, 1)))
		m.died("w1")
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		l.ages(time.Hour)
		word := told(NotSent)
		cfg := Config{}
		word(&cfg)
		same := func(c *Config) { c.Told, c.ToldAt = cfg.Told, cfg.ToldAt }
		for i := range 4 {
			errs := newRecording(t, b, m.requeues("p1"), l, change, same).Handle(t.Context(), grants(1, 1))
			b.holds(t, grants(1, 1))
			require.Equal(t, 2, b.all(), "%s: what was lost, and what was sent on the word", name)
			if name == "neither" {
				require.Len(t, errs, 1)
				require.NotEqual(t, hongbao.Permanent, hongbao.ClassOf(errs[0]))
			} else {
				require.Nil(t, errs)
			}
			if i == 1 {
				m.forgetAll()
			}
		}
	}
}

// A remote without QueryFinal: its "not found" counts when a person says so too, and then the credit is sent once.
func TestToldThatNothingIsUnderWay(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	b.forgets = true
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) })
	require.NotNil(t, newRecording(t, b, m.as("w1"), l, queryable).Handle(t.Context(), grants(1, 1)))
	m.died("w1")
	b.set(nil)
	l.ages(time.Hour)
	require.NotNil(t, newRecording(t, b, m.requeues("p1"), l, queryable).Handle(t.Context(), grants(1, 1)))
	require.Equal(t, 1, b.all())
	require.Nil(t, newRecording(t, b, m.requeues("p1"), l, queryable, told(NotSent)).Handle(t.Context(), grants(1, 1)))
	b.holds(t, grants(1, 1))
	l.has(t, grants(1, 1))
	require.Zero(t, m.left())
}

// Dead letters of a claim that covered many are requeued one by one: the last one ends it, and until then it keeps what is in the dark.
func TestRequeuedOutOfAClaim(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		if c = b.book(c); c.Amount == 103 || c.Amount == 105 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		b.say(w, http.StatusCreated, c)
	})
	all := grants(1, 8)
	_, err := m.as("w0").Claim(t.Context(), 0, newClaimID(), runs([]int64{1, 2, 3, 4, 5, 6, 7, 8}), note{time.Now(), "prod"}.String())
	require.NoError(t, err)
	m.died("w0") // before it sent anything
	h := newRecording(t, b, m.as("w1"), l, repeats)
	for _, part := range [][]hongbao.Grant{all[:4], all[4:]} { // as the consumer happens to hand them over
		errs := h.Handle(t.Context(), part)
		require.Len(t, errs, 4)
		m.ack(part, errs)
	}
	require.Equal(t, runs([]int64{3, 5}), m.covered())
	m.died("w1")
	for _, seq := range []int64{3, 5} { // they are dead letters now
		m.done[seq] = true
	}
	b.set(nil)
	for i, seq := range []int64{5, 3} {
		require.Nil(t, newRecording(t, b, m.requeues("p1"), l, repeats).Handle(t.Context(), all[seq-1:seq]))
		require.Equal(t, 1-i, m.left())
	}
	b.holds(t, all)
	l.has(t, all)
}

// covered is what all claims cover together.
func (m *memClaims) covered() []hongbao.SeqRange {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []hongbao.SeqRange
	for _, c := range m.open {
		list = append(list, c.Events...)
	}
	return list
}
