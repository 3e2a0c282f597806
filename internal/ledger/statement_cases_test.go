package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// testStatementFollowed reads an account's statement page by page while eight writers credit the account. The reader
// gets every booked credit.
func testStatementFollowed(t *testing.T, f *fixture) {
	const writers, each = 8, 60
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i
				c := testCredit(n)
				c.Account = "followed"
				c.Reference = fmt.Sprintf("r%d-%d", n*7919%1000, n)
				if answers, err := f.ledger.Credit(t.Context(), []payment.Credit{c}); err != nil || answers[0].Err != nil {
					errs[w] = fmt.Errorf("%w, %v", err, answers)
					return
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	page := payment.StatementPage{Account: "followed", Currency: testCurrency, Limit: 7}
	read, pages := 0, 0
	for over := false; ; {
		select {
		case <-written:
			over = true
		default:
		}
		list, err := f.ledger.Statement(t.Context(), page)
		require.NoError(t, err)
		for _, line := range list {
			read++
			require.EqualValues(t, read, line.Number, "no line is missed")
		}
		if len(list) > 0 {
			page.After = list[len(list)-1].Number
			pages++
		} else if over {
			break
		}
	}
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Greater(t, pages, writers*each/7)
	require.Equal(t, writers*each, read)
	f.credit(t)
}

func testStatement(t *testing.T, f *fixture) {
	for i := range 30 {
		f.credit(t, testCredit(i))
	}
	dollars := testCredit(32)
	dollars.Currency = "USD"
	f.credit(t, dollars)
	page := payment.StatementPage{Account: "u2", Currency: testCurrency, Limit: 4}
	var got []string
	for {
		list, err := f.ledger.Statement(t.Context(), page)
		require.NoError(t, err)
		for _, line := range list {
			require.Equal(t, "u2", line.Account)
			require.Equal(t, "c1", line.Client)
			got = append(got, line.Reference)
		}
		if len(list) == 0 {
			break
		}
		page.After = list[len(list)-1].Number
	}
	require.Equal(t, []string{"r0002", "r0005", "r0008", "r0011", "r0014", "r0017", "r0020", "r0023", "r0026", "r0029"},
		got)
	require.EqualValues(t, 10, page.After)
	f.credit(t, testCredit(32)) // refused because its key was used, so it has no line
	fourth := testCredit(35)
	f.credit(t, fourth, testCredit(38))
	list, err := f.ledger.Statement(t.Context(), page)
	require.NoError(t, err)
	require.Len(t, list, 2, "the statement continues after the last line's number")
	require.Equal(t, []any{int64(11), "r0035", int64(12), "r0038"}, []any{list[0].Number, list[0].Reference,
		list[1].Number, list[1].Reference})
}

// testCreditClients credits two clients with the same key and reference: both credits are booked.
func testCreditClients(t *testing.T, f *fixture) {
	ours, theirs := testCredit(1), testCredit(1)
	theirs.Client, theirs.Amount = "c2", 7
	answers := f.credit(t, ours, theirs)
	for _, a := range answers {
		require.NoError(t, a.Err)
		require.False(t, a.Repeated)
	}
	for _, a := range f.credit(t, ours, theirs) {
		require.True(t, a.Repeated)
	}
	got, found, err := f.ledger.CreditByReference(t.Context(), "c2", "r0001")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 7, got.Amount)
	_, found, err = f.ledger.CreditByReference(t.Context(), "c3", "r0001")
	require.NoError(t, err)
	require.False(t, found)
	list, err := f.ledger.Statement(t.Context(), payment.StatementPage{Account: "u1", Currency: testCurrency, Limit: 9})
	require.NoError(t, err)
	require.Equal(t, []string{"c1", "c2"}, []string{list[0].Client, list[1].Client})
}

func testCreditList(t *testing.T, f *fixture) {
	other := testCredit(3)
	other.Client = "c2"
	f.credit(t, testCredit(5), testCredit(1), other, testCredit(4), testCredit(2))
	page := payment.CreditPage{Client: "c1", Limit: 3}
	var got []string
	for {
		list, err := f.ledger.Credits(t.Context(), page)
		require.NoError(t, err)
		for _, c := range list {
			got = append(got, c.Reference)
		}
		if len(list) < page.Limit {
			break
		}
		page.After = list[len(list)-1].Reference
	}
	require.Equal(t, []string{"r0001", "r0002", "r0004", "r0005"}, got)
}

func testCreditDifferences(t *testing.T, f *fixture) {
	f.credit(t, testCredit(1), testCredit(2))
	sum := "sum of the credits = balance"
	for sql, want := range map[string][]string{
		`UPDATE credit_account SET balance = balance + $1 WHERE id = 'u1'`: {sum},
		`UPDATE credit SET amount = amount + $1 WHERE account = 'u2'`: {sum,
			"sum of the credits = credited"},
		`UPDATE credit_account SET credits = credits + $1 WHERE id = 'u2'`: {"number of credits"},
		`UPDATE credit SET line_no = line_no + $1 WHERE account = 'u2'`: {"last line of the " +
			"statement"},
		`UPDATE credit_fund SET credited = credited + $1 WHERE client = 'c1' AND credits > 0`: {"sum of the credits = " +
			"credited"},
		`UPDATE credit_fund SET credits = credits + $1 WHERE client = 'c1' AND currency = 'CNY'`: {"number of credits"},
		`UPDATE credit_fund SET funded = funded - $1 WHERE client = 'c2' AND currency = 'USD'`: {"sum of the fundings = " +
			"funded"},
	} {
		f.tamper(t, db.Stmt{SQL: sql, Args: []any{int64(1)}})
		list, err := f.books().CheckCredits(t.Context())
		require.NoError(t, err)
		var got []string
		for _, d := range list {
			got = append(got, d.What)
		}
		require.Equal(t, want, got, sql)
		f.tamper(t, db.Stmt{SQL: sql, Args: []any{int64(-1)}})
		f.credit(t)
	}
}

// testCreditRows checks that CheckCredits finds deleted credits, accounts and funds, and a credit without a line
// number.
func testCreditRows(t *testing.T, f *fixture) {
	f.credit(t, testCredit(1), testCredit(2), testCredit(4))
	for sql, want := range map[string][]string{
		`DELETE FROM credit WHERE reference = 'r0002'`: {"account u2, CNY", "account u2, CNY", "fund of c1, CNY",
			"fund of c1, CNY"},
		`DELETE FROM credit_account WHERE id = 'u1'`: {"account u1, CNY", "account u1, CNY"},
		`DELETE FROM credit_fund WHERE client = 'c1' AND credits > 0`: {"fund of c1, CNY", "fund of c1, CNY",
			"fund of c1, CNY"},
		`DELETE FROM credit_funding WHERE client = 'c2' AND currency = 'USD'`: {"fund of c2, USD"},
		`UPDATE credit SET line_no = NULL WHERE reference = 'r0004'`: {"account u1, CNY", "account u1, CNY",
			"fund of c1, CNY", "fund of c1, CNY"},
	} {
		broken := errors.New("roll back")
		err := f.ledger.tables.Together(t.Context(), func(ctx context.Context) error {
			require.NoError(t, f.ledger.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
				return []db.Stmt{{SQL: sql}}, nil
			}))
			list, err := f.books().CheckCredits(ctx)
			require.NoError(t, err)
			var where []string
			for _, d := range list {
				where = append(where, d.Where)
			}
			require.Equal(t, want, where, sql)
			return broken
		})
		require.ErrorIs(t, err, broken)
		f.credit(t)
	}
}
