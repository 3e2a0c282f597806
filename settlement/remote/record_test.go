package remote

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// books is a ledger in memory.
type books struct {
	mu    sync.Mutex
	held  map[string]hongbao.Grant // by event
	calls int
	fail  func(g *hongbao.Grant) error // not nil: what it says of each grant
	// unread is what reading gives.
	unread error

	intents map[string]intent // by reference
	intend  func() error      // not nil: what comes of an intent that is noted now
	forgets func() error      // not nil: what comes of removing one, which does not happen if it fails
}

// intent is what was about to be sent.
type intent struct {
	claim string
	since time.Time
}

func newBooks() *books {
	return &books{held: map[string]hongbao.Grant{}, intents: map[string]intent{}}
}

func (b *books) Intend(_ context.Context, g *hongbao.Grant, claim string) (string, time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := Key("prod", g.Campaign, g.Packet)
	if _, found := b.intents[key]; !found {
		b.intents[key] = intent{claim, time.Now()}
	}
	if b.intend != nil {
		if err := b.intend(); err != nil {
			return "", time.Time{}, err
		}
	}
	return b.intents[key].claim, b.intents[key].since, nil
}

func (b *books) Forget(_ context.Context, g *hongbao.Grant, claim string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.forgets != nil {
		if err := b.forgets(); err != nil {
			return err
		}
	}
	if key := Key("prod", g.Campaign, g.Packet); b.intents[key].claim == claim {
		delete(b.intents, key)
	}
	return nil
}

// ages makes the intents that stand older.
func (b *books) ages(by time.Duration) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, i := range b.intents {
		b.intents[key] = intent{i.claim, i.since.Add(-by)}
	}
	return len(b.intents)
}

func (b *books) Handle(_ context.Context, grants []hongbao.Grant) []error {
	b.mu.Lock()
	b.calls++
	fail := b.fail
	b.mu.Unlock()
	errs := make([]error, len(grants))
	for i := range grants { // it may wait for others, who read first
		if fail != nil {
			errs[i] = fail(&grants[i])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, g := range grants {
		if errs[i] == nil {
			b.held[g.EventID()] = g
		}
	}
	return errs
}

func (b *books) Recorded(_ context.Context, grants []hongbao.Grant) (list []hongbao.Grant, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.held {
		if slices.ContainsFunc(grants, func(w hongbao.Grant) bool { return w.Campaign == g.Campaign && w.Packet == g.Packet }) {
			list = append(list, g)
		}
	}
	return list, b.unread
}

func (b *books) fails(fail func(*hongbao.Grant) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

// has tells that exactly these grants are recorded.
func (b *books) has(t *testing.T, grants []hongbao.Grant) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.held, len(grants))
	for _, g := range grants {
		require.Equal(t, g, b.held[g.EventID()])
	}
}

func ledgerDown(*hongbao.Grant) error {
	return hongbao.Outagef(hongbao.Transient, "the ledger is down")
}

// kinds of remotes, by what they are able to do.
var kinds = map[string]func(*Config){
	"idempotent": repeats, "queryable": queryable, "neither": neither, "batches": func(c *Config) { c.BatchCredits = 7 },
}

// The ledger is away while the remote answers: nothing is done, nothing is sent again, and all is recorded when it is back.
func TestLedgerAwayAfterTheCredit(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			h := newRecording(t, b, m.as("w1"), l, change)
			l.fails(ledgerDown)
			for range 2 {
				errs := h.Handle(t.Context(), grants(1, 20))
				require.Len(t, errs, 20)
				for _, err := range errs {
					require.True(t, hongbao.IsOutage(err), "%v", err)
					require.ErrorContains(t, err, "not recorded in the ledger")
				}
				b.holds(t, grants(1, 20))
				require.Positive(t, m.left(), "the claims stay")
				l.has(t, nil)
			}
			sent := b.all()
			m.died("w1")
			l.fails(nil)
			require.Nil(t, newRecording(t, b, m.as("w2"), l, change).Handle(t.Context(), grants(1, 20)))
			require.Equal(t, sent, b.all(), "what was noted is not sent again")
			l.has(t, grants(1, 20))
			b.holds(t, grants(1, 20))
			require.Zero(t, m.left())
		})
	}
}

// The worker dies between the remote's answer and the ledger's commit, and Redis did not take its note either.
func TestKilledBeforeTheLedger(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			b.forgets = name == "queryable" || name == "neither"
			m.noNotes = true
			l.fails(ledgerDown)
			errs := newRecording(t, b, m.as("w1"), l, change).Handle(t.Context(), grants(1, 6))
			require.Len(t, errs, 6)
			require.ErrorContains(t, errs[0], "could not be noted")
			m.died("w1")
			l.fails(nil)
			errs = newRecording(t, b, m.as("w2"), l, change).Handle(t.Context(), grants(1, 6))
			b.holds(t, grants(1, 6))
			if name == "neither" {
				require.Len(t, errs, 6)
				require.Equal(t, hongbao.Conflict, hongbao.ClassOf(errs[5]), "nobody can tell: a person decides")
				l.has(t, nil)
				return
			}
			require.Nil(t, errs)
			l.has(t, grants(1, 6))
			require.Zero(t, m.left())
		})
	}
}

// The ledger refuses one of them for good: the others are done.
func TestLedgerRefusesOne(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	h := newRecording(t, b, m.as("w1"), l)
	l.fails(func(g *hongbao.Grant) error {
		if g.Packet == 3 {
			return hongbao.Errorf(hongbao.Permanent, "malformed")
		}
		return nil
	})
	errs := h.Handle(t.Context(), grants(1, 5))
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(errs[2]))
	errs[2] = nil
	require.Equal(t, make([]error, 5), errs)
	l.has(t, slices.Delete(grants(1, 5), 2, 3))
	require.Equal(t, 1, m.left())
	m.ack(grants(1, 2), nil)
	m.ack(grants(4, 5), nil)
	l.fails(nil)
	require.Nil(t, h.Handle(t.Context(), grants(3, 3)))
	require.Zero(t, m.left())
	l.has(t, grants(1, 5))
	b.holds(t, grants(1, 5))
}

// What has no value is recorded and not asked for.
func TestFreeIsRecorded(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	h := newRecording(t, b, m.as("w1"), l)
	free := hongbao.Grant{Campaign: "rain", Packet: 900, Seq: 4, User: "u"}
	l.fails(ledgerDown)
	require.True(t, hongbao.IsOutage(h.Handle(t.Context(), []hongbao.Grant{free})[0]))
	l.fails(nil)
	require.Nil(t, h.Handle(t.Context(), append(grants(1, 2), free)))
	l.has(t, append(grants(1, 2), free))
	b.holds(t, grants(1, 2))
	require.Empty(t, m.noted)
}

// A ledger that does not say what it holds is not believed.
type mute struct{ *books }

func (mute) Handle(_ context.Context, _ []hongbao.Grant) []error { return make([]error, 1) }

func TestLedgerThatMiscounts(t *testing.T) {
	t.Parallel()
	b, m := newBank(t), newClaims()
	h, err := New(testConfig(b.URL), m.as("w1"), campaigns{}, mute{newBooks()})
	require.NoError(t, err)
	t.Cleanup(h.Close)
	require.Equal(t, hongbao.Broken, hongbao.ClassOf(h.Handle(t.Context(), grants(1, 2))[1]))
	require.Equal(t, 1, m.left())
}

// Grants with a claim each go to the ledger together: while one is recorded the others gather.
func TestRecordedTogether(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	h := newRecording(t, b, m.as("w1"), l, queryable, func(c *Config) { c.Concurrency = 16 })
	var first atomic.Bool
	l.fails(func(*hongbao.Grant) error {
		for end := time.Now().Add(20 * time.Second); !first.Load() && time.Now().Before(end); runtime.Gosched() {
			h.ledger.mu.Lock()
			first.Store(len(h.ledger.queue) == 15)
			h.ledger.mu.Unlock()
		}
		return nil
	})
	require.Nil(t, h.Handle(t.Context(), grants(1, 16)))
	require.True(t, first.Load())
	require.Equal(t, 2, l.calls)
	l.has(t, grants(1, 16))
}

// all is how many posts there were.
func (b *bank) all() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// A replay: nothing of it is ever sent as a new credit, unless the remote surely remembers the first one.
func TestAgain(t *testing.T) {
	t.Parallel()
	again := func(c *Config) { c.Again = true }
	now := time.Now()
	aged := func(age time.Duration) []hongbao.Grant {
		list := grants(1, 4)
		for i := range list {
			list[i].Time = now.Add(-age)
		}
		return list
	}
	for name, c := range map[string]struct {
		change func(*Config)
		age    time.Duration
		lost   bool // the remote has lost what it had
		says   string
	}{
		"remembered":                {repeats, 23 * time.Hour, false, ""},
		"remembered, lost there":    {repeats, 23 * time.Hour, true, ""},
		"forgotten":                 {repeats, 25 * time.Hour, false, "could pay twice"},
		"asked":                     {queryable, time.Hour, false, ""},
		"asked, lost there":         {queryable, time.Hour, true, "not sent again"},
		"forgotten, asked":          {func(*Config) {}, 25 * time.Hour, false, ""},
		"forgotten, asked, lost":    {func(*Config) {}, 25 * time.Hour, true, "not sent again"},
		"neither":                   {neither, time.Second, false, "could pay twice"},
		"without a time":            {repeats, 500_000 * time.Hour, false, "could pay twice"},
		"remembered, from tomorrow": {repeats, -time.Hour, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m, l := newBank(t), newClaims(), newBooks()
			list := aged(c.age)
			if !c.lost {
				for _, g := range list {
					b.book(credit{Reference: Key("prod", g.Campaign, g.Packet), Account: g.User, Currency: "CNY", Amount: g.Amount})
				}
			}
			h := newRecording(t, b, m.as("w1"), l, c.change, again)
			errs := h.Handle(t.Context(), list)
			require.Zero(t, m.left(), "no claim stays")
			if c.says == "" {
				require.Nil(t, errs)
				b.holds(t, list)
				l.has(t, list)
				return
			}
			require.Len(t, errs, 4)
			for _, err := range errs {
				require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
				require.ErrorContains(t, err, c.says)
				require.NotErrorIs(t, err, ErrContradiction)
			}
			require.Zero(t, b.all())
			l.has(t, nil)
		})
	}
}

// A replay meets a remote that has something else, or does not answer.
func TestAgainFails(t *testing.T) {
	t.Parallel()
	b, m, l := newBank(t), newClaims(), newBooks()
	b.book(credit{Reference: "prod:rain:1", Account: "thief", Currency: "CNY", Amount: 101})
	h := newRecording(t, b, m.as("w1"), l, queryable, func(c *Config) { c.Again = true })
	errs := h.Handle(t.Context(), grants(1, 1))
	require.ErrorIs(t, errs[0], ErrContradiction)
	require.Equal(t, hongbao.Conflict, hongbao.ClassOf(errs[0]))
	b.Close()
	errs = h.Handle(t.Context(), grants(2, 2))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Zero(t, m.left())

	b = newBank(t) // booked, and not answered: the claim stays, as at the first time
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	h = newRecording(t, b, m.as("w1"), l, repeats, func(c *Config) { c.Again, c.Repeats = true, 0 })
	list := grants(3, 3)
	list[0].Time = time.Now()
	errs = h.Handle(t.Context(), list)
	require.Equal(t, hongbao.Unknown, hongbao.ClassOf(errs[0]))
	require.Equal(t, 1, m.left())
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), list))
	require.Zero(t, m.left())
	l.has(t, list)
}
