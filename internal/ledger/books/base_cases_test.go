package books

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// bases returns the sum of all bases, and the number of accounts that an audit reads.
func (f *fixture) bases(t *testing.T) (sum, moved int64) {
	t.Helper()
	sum = ledgertest.Number(t, f.Tables(), `SELECT CAST(SUM(base) AS DECIMAL(20, 0)) FROM account`)
	moved = ledgertest.Number(t, f.Tables(), `SELECT COUNT(*) FROM account WHERE balance <> base`)
	return sum, moved
}

func (f *fixture) conserves(t *testing.T) {
	t.Helper()
	for _, check := range []func(context.Context) ([]Difference, error){f.books.CheckConservation,
		f.books.CheckEveryAccount} {
		list, err := check(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	}
}

// unbased turns the seals into those of processes that were killed before they added a base.
func (f *fixture) unbased(t *testing.T) {
	t.Helper()
	f.Tamper(t, db.Stmt{SQL: `UPDATE seal SET based = 0`}, db.Stmt{SQL: `UPDATE account SET base = 0`})
}

// An audit reads only accounts with money of campaigns that are not sealed, the sponsor's account, and open pools.
func testBases(t *testing.T, f *fixture) {
	f.Create(t, "snow", 10)
	f.Settle(t, ledgertest.Grants("snow", 1, 2)...)
	sealed(t, f, "rain")
	sum, moved := f.bases(t)
	require.EqualValues(t, ledgertest.FundedFor(4), sum)
	require.EqualValues(t, 2+1+1, moved, "two users of snow, the sponsor, and the pool of snow")
	f.conserves(t)
	f.Settle(t, ledgertest.Grants("snow", 3, 6)...)
	f.conserves(t)
	f.Refund(t, ledgertest.Close("snow", 10, 6))
	require.NoError(t, f.books.Seal(t.Context(), "snow"))
	sum, moved = f.bases(t)
	require.EqualValues(t, ledgertest.FundedFor(4)+ledgertest.FundedFor(6), sum)
	require.EqualValues(t, 1, moved, "the sponsor")
	f.conserves(t)

	// docs/audit.md, "To remove the seals"
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM topic_base`}, db.Stmt{SQL: `DELETE FROM seal`},
		db.Stmt{SQL: `UPDATE account SET base = 0 WHERE base <> 0`})
	f.conserves(t)
	require.NoError(t, f.books.Seal(t.Context(), "snow"))
	f.conserves(t)
}

// An audit stores where the next one begins only if no other audit has done so since it began.
func testTopicBases(t *testing.T, f *fixture) {
	none, err := f.books.TopicBases(t.Context(), "grants")
	require.NoError(t, err)
	require.Empty(t, none)
	older := []model.TopicBase{{Part: 0, First: 5, Next: 9, Last: 8, Event: "rain 1 0-1"}, {Part: 1, First: 2, Next: 2,
		Last: -1}}
	newer := []model.TopicBase{older[0], {Part: 1, First: 2, Next: 4, Last: 3, Event: "rain 2 1-1"}}
	require.NoError(t, f.books.SetTopicBases(t.Context(), "grants", none, older))
	require.NoError(t, f.books.SetTopicBases(t.Context(), "other", none, older))
	require.NoError(t, f.books.SetTopicBases(t.Context(), "grants", older, newer))
	for _, late := range [][]model.TopicBase{none, older} {
		require.NoError(t, f.books.SetTopicBases(t.Context(), "grants", late, older))
		has, err := f.books.TopicBases(t.Context(), "grants")
		require.NoError(t, err)
		require.Equal(t, newer, has)
	}
	has, err := f.books.TopicBases(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, older, has)
}

// A seal was killed before it added a base. The next seal adds them. It can be killed between two steps, and two
// processes can add them at once.
func testBaseSteps(t *testing.T, f *fixture) {
	sealed(t, f, "rain")
	f.unbased(t)
	f.conserves(t)
	totals, _, err := f.books.Totals(t.Context(), "rain")
	require.NoError(t, err)

	dies, cancel := context.WithCancel(t.Context())
	inner, steps := f.Tables().Store, 0
	f.Tables().Store = &ledgertest.Watched{Store: inner, Query: func(_ context.Context, sql string, _ int) {
		if strings.Contains(sql, "SELECT based") {
			if steps++; steps == 2 {
				cancel()
			}
		}
	}}
	require.Error(t, f.books.addBases(dies, &totals, 3))
	f.Tables().Store = inner
	sum, _ := f.bases(t)
	require.EqualValues(t, ledgertest.FundedFor(3), sum)
	f.conserves(t)
	require.NoError(t, f.books.Seal(t.Context(), "rain"))
	sum, _ = f.bases(t)
	require.EqualValues(t, ledgertest.FundedFor(4), sum)

	f.unbased(t)
	other := newFixture(t, f.Database)
	var together errgroup.Group
	for _, b := range []Books{f.books, other.books} {
		together.Go(func() error { return b.addBases(t.Context(), &totals, 1) })
	}
	require.NoError(t, together.Wait())
	sum, _ = f.bases(t)
	require.EqualValues(t, ledgertest.FundedFor(4), sum)
	f.conserves(t)

	f.unbased(t)
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM account WHERE id = $1`, Args: []any{tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency)}})
	require.ErrorContains(t, f.books.Seal(t.Context(), "rain"), "4 accounts were paid, but the ledger has only 3")
}

// Faults that someone plants in the ledger after all campaigns were sealed.
func testFoundAfterSeal(t *testing.T, f *fixture) {
	sealed(t, f, "rain")
	account := tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency)
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
		f.Tamper(t, c.plant)
		list, err := f.books.CheckConservation(t.Context())
		require.NoError(t, err)
		every, err := f.books.CheckEveryAccount(t.Context())
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
		f.Tamper(t, c.undo)
		f.conserves(t)
	}
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM account WHERE id = $1`, Args: []any{account}})
	list, err := f.books.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = f.books.CheckEveryAccount(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list, "a deleted account")
}
