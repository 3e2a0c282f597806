package ledger

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// bases returns the sum of all bases, and the number of accounts that an audit reads.
func (f *fixture) bases(t *testing.T) (sum, moved int64) {
	t.Helper()
	var err error
	sum, _, err = tables.Ask("add up", `SELECT CAST(SUM(base) AS DECIMAL(20, 0)) FROM account`, nil, tables.Number).One(
		t.Context(), f.ledger.tables)
	require.NoError(t, err)
	moved, _, err = tables.Ask("count", `SELECT COUNT(*) FROM account WHERE balance <> base`, nil, tables.Number).One(
		t.Context(), f.ledger.tables)
	require.NoError(t, err)
	return sum, moved
}

func (f *fixture) conserves(t *testing.T) {
	t.Helper()
	for _, check := range []func(context.Context) ([]Difference, error){f.ledger.CheckConservation,
		f.ledger.CheckEveryAccount} {
		list, err := check(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	}
}

// unbased turns the seals into those of processes that were killed before they added a base.
func (f *fixture) unbased(t *testing.T) {
	t.Helper()
	f.tamper(t, db.Stmt{SQL: `UPDATE seal SET based = 0`}, db.Stmt{SQL: `UPDATE account SET base = 0`})
}

// An audit reads only accounts with money of campaigns that are not sealed, the sponsor's account, and open pools.
func testBases(t *testing.T, f *fixture) {
	f.create(t, "snow", 10)
	f.settles(t, grantsOf("snow", 1, 2)...)
	sealed(t, f, "rain")
	sum, moved := f.bases(t)
	require.EqualValues(t, fundedFor(4), sum)
	require.EqualValues(t, 2+1+1, moved, "two users of snow, the sponsor, and the pool of snow")
	f.conserves(t)
	f.settles(t, grantsOf("snow", 3, 6)...)
	f.conserves(t)
	f.refunds(t, closeOf("snow", 10, 6))
	require.NoError(t, f.ledger.Seal(t.Context(), "snow"))
	sum, moved = f.bases(t)
	require.EqualValues(t, fundedFor(4)+fundedFor(6), sum)
	require.EqualValues(t, 1, moved, "the sponsor")
	f.conserves(t)

	// docs/audit.md, "To remove the seals"
	f.tamper(t, db.Stmt{SQL: `DELETE FROM topic_base`}, db.Stmt{SQL: `DELETE FROM seal`},
		db.Stmt{SQL: `UPDATE account SET base = 0 WHERE base <> 0`})
	f.conserves(t)
	require.NoError(t, f.ledger.Seal(t.Context(), "snow"))
	f.conserves(t)
}

// An audit stores where the next one begins only if no other audit has done so since it began.
func testTopicBases(t *testing.T, f *fixture) {
	none, err := f.ledger.TopicBases(t.Context(), "grants")
	require.NoError(t, err)
	require.Empty(t, none)
	older := []model.TopicBase{{Part: 0, First: 5, Next: 9, Last: 8, Event: "rain 1 0-1"}, {Part: 1, First: 2, Next: 2,
		Last: -1}}
	newer := []model.TopicBase{older[0], {Part: 1, First: 2, Next: 4, Last: 3, Event: "rain 2 1-1"}}
	require.NoError(t, f.ledger.SetTopicBases(t.Context(), "grants", none, older))
	require.NoError(t, f.ledger.SetTopicBases(t.Context(), "other", none, older))
	require.NoError(t, f.ledger.SetTopicBases(t.Context(), "grants", older, newer))
	for _, late := range [][]model.TopicBase{none, older} {
		require.NoError(t, f.ledger.SetTopicBases(t.Context(), "grants", late, older))
		has, err := f.ledger.TopicBases(t.Context(), "grants")
		require.NoError(t, err)
		require.Equal(t, newer, has)
	}
	has, err := f.ledger.TopicBases(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, older, has)
}

// A seal was killed before it added a base. The next seal adds them. It can be killed between two steps, and two
// processes can add them at once.
func testBaseSteps(t *testing.T, f *fixture) {
	sealed(t, f, "rain")
	f.unbased(t)
	f.conserves(t)
	totals, _, err := f.ledger.Totals(t.Context(), "rain")
	require.NoError(t, err)

	dies, cancel := context.WithCancel(t.Context())
	inner, steps := f.ledger.tables.Store, 0
	f.ledger.tables.Store = &watched{Store: inner, query: func(_ context.Context, sql string, _ int) {
		if strings.Contains(sql, "SELECT based") {
			if steps++; steps == 2 {
				cancel()
			}
		}
	}}
	require.Error(t, f.ledger.addBases(dies, &totals, 3))
	f.ledger.tables.Store = inner
	sum, _ := f.bases(t)
	require.EqualValues(t, fundedFor(3), sum)
	f.conserves(t)
	require.NoError(t, f.ledger.Seal(t.Context(), "rain"))
	sum, _ = f.bases(t)
	require.EqualValues(t, fundedFor(4), sum)

	f.unbased(t)
	other := open(t, f.config)
	var together errgroup.Group
	for _, l := range []*Ledger{f.ledger, other} {
		together.Go(func() error { return l.addBases(t.Context(), &totals, 1) })
	}
	require.NoError(t, together.Wait())
	sum, _ = f.bases(t)
	require.EqualValues(t, fundedFor(4), sum)
	f.conserves(t)

	f.unbased(t)
	f.tamper(t, db.Stmt{SQL: `DELETE FROM account WHERE id = $1`, Args: []any{tables.UserAccount(grant("rain", 2).User, testCurrency)}})
	require.ErrorContains(t, f.ledger.Seal(t.Context(), "rain"), "4 accounts were paid, but the ledger has only 3")
}

// Faults that someone plants in the ledger after all campaigns were sealed.
func testFoundAfterSeal(t *testing.T, f *fixture) {
	sealed(t, f, "rain")
	account := tables.UserAccount(grant("rain", 2).User, testCurrency)
	set := func(sql string) db.Stmt {
		return db.Stmt{SQL: `UPDATE account SET ` + sql + ` WHERE id = $1`, Args: []any{account}}
	}
	for name, c := range map[string]struct {
		plant, undo db.Stmt
		where       string
		everyOnly   bool
	}{
		"a balance":           {set(`balance = balance + 1`), set(`balance = balance - 1`), account, false},
		"a base":              {set(`base = base + 1`), set(`base = base - 1`), "group", false},
		"a balance with base": {set(`balance = balance + 1, base = base + 1`), set(`balance = balance - 1, base = base - 1`), account, true},
		"a sponsor": {db.Stmt{SQL: `UPDATE account SET balance = balance - 1 WHERE id LIKE 'sponsor:%'`},
			db.Stmt{SQL: `UPDATE account SET balance = balance + 1 WHERE id LIKE 'sponsor:%'`}, "currency", false},
		"a campaign": {db.Stmt{SQL: `UPDATE campaign SET grants = grants + 1`},
			db.Stmt{SQL: `UPDATE campaign SET grants = grants - 1`}, "campaign rain", false},
		"a grant": {db.Stmt{SQL: `UPDATE grants SET amount = amount + 1 WHERE packet = 2`},
			db.Stmt{SQL: `UPDATE grants SET amount = amount - 1 WHERE packet = 2`}, "campaign rain", true},
		"a transfer": {db.Stmt{SQL: `UPDATE transfer SET amount = amount + 1 WHERE kind = 'grants'`},
			db.Stmt{SQL: `UPDATE transfer SET amount = amount - 1 WHERE kind = 'grants'`}, "campaign rain", true},
	} {
		f.tamper(t, c.plant)
		list, err := f.ledger.CheckConservation(t.Context())
		require.NoError(t, err)
		every, err := f.ledger.CheckEveryAccount(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, every, name)
		if c.everyOnly {
			require.Empty(t, list, name)
			list = every
		}
		found := false
		for _, d := range list {
			found = found || strings.Contains(d.Where, c.where)
		}
		require.True(t, found, "%s: %v", name, list)
		f.tamper(t, c.undo)
		f.conserves(t)
	}
	f.tamper(t, db.Stmt{SQL: `DELETE FROM account WHERE id = $1`, Args: []any{account}})
	list, err := f.ledger.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = f.ledger.CheckEveryAccount(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list, "a deleted account")
}
