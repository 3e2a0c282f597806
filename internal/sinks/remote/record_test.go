package remote

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// The ledger fails while the remote credits the grants. The grants are not done, and no credit is requested twice. When
// the ledger is back, everything is recorded.
func TestLedgerAwayAfterTheCredit(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			h := newHandler(t, b, l, change)
			l.fails(ledgerDown)
			for range 2 {
				errs := h.Handle(t.Context(), testkit.Batch(grants(1, 20)))
				require.Len(t, errs, 20)
				for _, err := range errs {
					require.True(t, hongbao.IsOutage(err), "%v", err)
					require.ErrorContains(t, err, "not recorded in the ledger")
				}
				b.holds(t, grants(1, 20))
				require.Equal(t, 20, l.left(), "they are pending")
				l.has(t, nil)
			}
			sent := b.all()
			l.fails(nil)
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 20))))
			require.Equal(t, sent, b.all(), "credits that the worker remembers are not requested again")
			l.has(t, grants(1, 20))
			b.holds(t, grants(1, 20))
			require.Zero(t, l.left())
		})
	}
}

// The worker dies after the remote has answered and before the ledger commits. The next worker repeats or queries the
// credit. If the remote supports neither, a person decides.
func TestKilledBeforeTheLedger(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.notIdempotent = name == "queryable" || name == "neither"
			l.fails(ledgerDown)
			errs := newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 6)))
			require.Len(t, errs, 6)
			l.died()
			l.fails(nil)
			errs = newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 6)))
			b.holds(t, grants(1, 6))
			if name == "neither" {
				require.Len(t, errs, 6)
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[5]), "a person has to decide")
				l.has(t, nil)
				return
			}
			require.Nil(t, errs)
			l.has(t, grants(1, 6))
			require.Zero(t, l.left())
		})
	}
}

// The ledger refuses one grant permanently. The other grants are done.
func TestLedgerRefusesOne(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	h := newHandler(t, b, l)
	l.fails(func(g *hongbao.Grant) error {
		if g.Packet == 3 {
			return hongbao.Errorf(hongbao.ClassPermanent, "malformed")
		}
		return nil
	})
	errs := h.Handle(t.Context(), testkit.Batch(grants(1, 5)))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[2]))
	errs[2] = nil
	require.Equal(t, make([]error, 5), errs)
	l.has(t, slices.Delete(grants(1, 5), 2, 3))
	require.Equal(t, 1, l.left())
	l.fails(nil)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(3, 3))))
	require.Zero(t, l.left())
	l.has(t, grants(1, 5))
	b.holds(t, grants(1, 5))
}

// A grant without a value is recorded in the ledger, and no credit is requested for it.
func TestFreeIsRecorded(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	h := newHandler(t, b, l)
	free := hongbao.Grant{Campaign: "rain", Packet: 900, Seq: 4, User: "u"}
	l.fails(ledgerDown)
	require.True(t, hongbao.IsOutage(h.Handle(t.Context(), testkit.Batch([]hongbao.Grant{free}))[0]))
	l.fails(nil)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(append(grants(1, 2), free))))
	l.has(t, append(grants(1, 2), free))
	b.holds(t, grants(1, 2))
	require.Zero(t, l.left())
}

// mute is a ledger whose Record returns the wrong number of errors.
type mute struct{ *fakeLedger }

func (mute) Record(context.Context, hongbao.Batch) []error { return make([]error, 1) }

func TestLedgerThatMiscounts(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	h, err := New(testConfig(b.URL), campaigns{}, mute{l})
	require.NoError(t, err)
	t.Cleanup(h.Close)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(h.Handle(t.Context(), testkit.Batch(grants(1, 2)))[1]))
	require.Equal(t, 2, l.left())
}

// all returns the number of POST requests.
func (b *bank) all() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// A replay sends a request only while the remote certainly remembers the key of the first one. Otherwise it can only
// query.
func TestAgain(t *testing.T) {
	t.Parallel()
	again := func(c *Config) { c.Replay = true }
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
		lost   bool // the remote has lost its credits
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
			b, l := newBank(t), newBooks()
			list := aged(c.age)
			if !c.lost {
				for _, g := range list {
					b.book(credit{Reference: Key("prod", g.Campaign, g.Packet), Account: g.User, Currency: "CNY", Amount: g.Amount})
				}
			}
			h := newHandler(t, b, l, c.change, again)
			errs := h.Handle(t.Context(), testkit.Batch(list))
			require.Zero(t, l.left(), "no pending row stays")
			if c.says == "" {
				require.Nil(t, errs)
				b.holds(t, list)
				l.has(t, list)
				return
			}
			require.Len(t, errs, 4)
			for _, err := range errs {
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
				require.ErrorContains(t, err, c.says)
				require.NotErrorIs(t, err, ErrContradiction)
			}
			require.Zero(t, b.all())
			l.has(t, nil)
		})
	}
}

// A replay fails: the remote has a different credit, is unreachable, or its answer is lost.
func TestAgainFails(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.book(credit{Reference: "prod:rain:1", Account: "thief", Currency: "CNY", Amount: 101})
	h := newHandler(t, b, l, queryable, func(c *Config) { c.Replay = true })
	errs := h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
	require.ErrorIs(t, errs[0], ErrContradiction)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]))
	b.Close()
	errs = h.Handle(t.Context(), testkit.Batch(grants(2, 2)))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Zero(t, l.left())

	b = newBank(t) // booked, but the answer is lost: the pending row stays
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	h = newHandler(t, b, l, repeats, func(c *Config) { c.Replay, c.Repeats = true, 0 })
	list := grants(3, 3)
	list[0].Time = time.Now()
	errs = h.Handle(t.Context(), testkit.Batch(list))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]))
	require.Equal(t, 1, l.left())
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(list)))
	require.Zero(t, l.left())
	l.has(t, list)
}
