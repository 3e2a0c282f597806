package books

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

func testTotals(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.Create(t, "snow", 10)
	f.Settle(t, ledgertest.Grants("rain", 1, 3)...)
	f.Settle(t, append(ledgertest.Grants("rain", 4, 4), ledgertest.Grants("snow", 1, 1)...)...)
	f.Settle(t, ledgertest.Grant("rain", 99))
	got, found, err := f.books.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, Totals{
		Campaign: "rain", Currency: ledgertest.Currency, Funded: ledgertest.FundedFor(10), Granted: ledgertest.FundedFor(4),
		Pool: ledgertest.FundedFor(10) - ledgertest.FundedFor(4), Grants: 4, Places: 1,
	}, got)
	f.Refund(t, ledgertest.Close("rain", 10, 4))
	var all []Totals
	require.NoError(t, f.books.EachTotals(t.Context(), func(c *Totals) error {
		all = append(all, *c)
		return nil
	}))
	require.Len(t, all, 2)
	require.Equal(t, Totals{
		Campaign: "rain", Currency: ledgertest.Currency, Funded: ledgertest.FundedFor(10), Granted: ledgertest.FundedFor(4),
		Refunded: ledgertest.FundedFor(10) - ledgertest.FundedFor(4),
		Grants:   4, Places: 1, Closed: true, Closes: []payment.Close{{Shard: 3, Seq: 5}},
	}, all[0])
	require.EqualValues(t, 1, all[1].Grants)
}

func testDifferences(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.Settle(t, ledgertest.Grants("rain", 1, 4)...)
	for sql, what := range map[string]string{
		`UPDATE account SET balance = balance + $1 WHERE id = 'pool:rain'`: "funded = granted + refunded + pool",
		`UPDATE campaign SET granted = granted + $1`:                       "sum of the grants = granted",
		`UPDATE campaign SET grants = grants + $1`:                         "number of the grants = grants",
		`UPDATE grants SET amount = amount + $1 WHERE packet = 2`:          "debits of the pool = sum of the grants",
		`UPDATE transfer SET amount = amount + $1 WHERE kind = 'grants'`:   "debits of the pool = sum of the grants",
		`UPDATE transfer SET grants = grants + $1 WHERE kind = 'grants'`:   "grants that the debits cover = grants",
		`UPDATE account SET balance = balance + $1 WHERE id = 'user:CNY:u41'`: "sum of the users' balances = granted + " +
			"paid from the reserve",
		`UPDATE account SET balance = CASE id WHEN 'user:CNY:u41' THEN balance + $1 ELSE balance - $1 END
			WHERE id IN ('user:CNY:u41', 'user:CNY:u82')`: "its grants + paid from the reserve = balance",
		`UPDATE account SET balance = balance - $1 WHERE kind = 'sponsor'`: "sum of all accounts = 0",
		`UPDATE campaign SET refunded = refunded + $1`:                     "what the sponsors gave = funded - refunded",
	} {
		f.Tamper(t, db.Stmt{SQL: sql, Args: []any{int64(1)}})
		list, err := f.books.CheckConservation(t.Context())
		require.NoError(t, err)
		var found []string
		for _, d := range list {
			found = append(found, d.What)
			require.Contains(t, d.String(), d.What)
		}
		require.Contains(t, found, what, sql)
		f.Tamper(t, db.Stmt{SQL: sql, Args: []any{int64(-1)}})
		f.conserves(t)
		ledgertest.Has(t, func(fn func(hongbao.Grant) error) error { return f.Ledger.EachGrant(t.Context(), "rain", fn) },
			ledgertest.Grants("rain", 1, 4))
	}
}

func testSeal(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.Create(t, "snow", 10)
	f.Settle(t, append(ledgertest.Grants("rain", 1, 3), ledgertest.Grant("rain", 5), ledgertest.Grant("snow", 1))...)
	require.ErrorIs(t, f.books.Seal(t.Context(), "rain"), ErrNotSealable)
	require.ErrorIs(t, f.books.Seal(t.Context(), "typo"), tables.ErrNoCampaign)
	_, err := f.Ledger.Refund(t.Context(), func() []stream.Entry {
		e := ledgertest.Close("rain", 10, 4)
		e.Seq, e.Close.GrantedAmount = 6, ledgertest.FundedFor(3)+ledgertest.Planned(5)
		e.Close.LeftAmount = ledgertest.FundedFor(10) - e.Close.GrantedAmount
		return []stream.Entry{e}
	}(), 0)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.books.Seal(t.Context(), "rain"))
	}
	totals, _, err := f.books.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, totals.Sealed)
	seqs, err := f.books.SealedSeqs(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, map[int][]stream.SeqRange{3: {{First: 1, Last: 3}, {First: 5, Last: 5}}}, seqs)
	seqs, err = f.books.SealedSeqs(t.Context(), "snow")
	require.NoError(t, err)
	require.Empty(t, seqs)

	check := func() (list []Difference, pages int) {
		inner := f.Tables().Store
		f.Tables().Store = &ledgertest.Watched{Store: inner, Query: func(_ context.Context, sql string, _ int) {
			if strings.Contains(sql, "FROM grants") {
				pages++
			}
		}}
		list, err := f.books.CheckConservation(t.Context())
		f.Tables().Store = inner
		require.NoError(t, err)
		return list, pages
	}
	list, pages := check()
	require.Empty(t, list)
	require.Equal(t, 1, pages, "reads one page of grants of snow, but none of the sealed rain")
	f.Tamper(t, db.Stmt{SQL: `UPDATE account SET balance = balance + 1 WHERE id = $1`,
		Args: []any{tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency)}})
	list, pages = check()
	require.Equal(t, 3, pages, "after a difference all grants are read again, even those of the sealed rain")
	require.Equal(t, "account "+tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency), list[len(list)-1].Where)
	f.Tamper(t, db.Stmt{SQL: `UPDATE campaign SET grants = grants + 1 WHERE id = 'rain'`})
	list, _ = check()
	require.Equal(t, "number of the grants = grants", list[0].What)
	f.Tamper(t, db.Stmt{SQL: `UPDATE seal SET users = seqs, seqs = users`},
		db.Stmt{SQL: `UPDATE seal SET users = substr(users, 1, 1)`},
		db.Stmt{SQL: `INSERT INTO archive (campaign, file, sha256, grants, amount, archived_at, deleted_at)
			SELECT campaign, 'rain.csv', 'x', grants, amount, 1, 1 FROM seal`})
	_, err = f.books.CheckEveryAccount(t.Context())
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
}
