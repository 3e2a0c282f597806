package settlement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func testCredit(n int) hongbao.Credit {
	return hongbao.Credit{
		Key: fmt.Sprintf("k%04d", n), Reference: fmt.Sprintf("r%04d", n), Account: fmt.Sprintf("u%d", n%3), Currency: testCurrency,
		Amount: hongbao.Amount(100 + n),
	}
}

func (f *fixture) credit(t *testing.T, credits ...hongbao.Credit) []hongbao.Credited {
	t.Helper()
	answers, err := f.ledger.Credit(t.Context(), credits)
	require.NoError(t, err)
	require.Len(t, answers, len(credits))
	differences, err := f.ledger.CheckCredits(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	return answers
}

func (f *fixture) balances(t *testing.T, account string) []hongbao.AccountBalance {
	t.Helper()
	list, err := f.ledger.AccountBalances(t.Context(), account)
	require.NoError(t, err)
	return list
}

func testCreditOnce(t *testing.T, f *fixture) {
	first := f.credit(t, testCredit(1))[0]
	require.NoError(t, first.Err)
	require.False(t, first.Repeated)
	require.WithinDuration(t, time.Now(), first.Credit.Created, time.Minute)
	again := f.credit(t, testCredit(1))[0]
	require.NoError(t, again.Err)
	require.True(t, again.Repeated)
	require.Equal(t, first.Credit, again.Credit, "the first answer, word for word")
	got, found, err := f.ledger.CreditByReference(t.Context(), "r0001")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, first.Credit, got)
	require.Equal(t, []hongbao.AccountBalance{{Currency: testCurrency, Balance: 101, Credits: 1}}, f.balances(t, "u1"))
	_, found, err = f.ledger.CreditByReference(t.Context(), "r0002")
	require.NoError(t, err)
	require.False(t, found)
	require.Empty(t, f.balances(t, "nobody"))
}

func testCreditReused(t *testing.T, f *fixture) {
	f.credit(t, testCredit(1))
	otherAmount, otherAccount, otherKey, mixed := testCredit(1), testCredit(1), testCredit(1), testCredit(2)
	otherAmount.Amount++
	otherAccount.Account = "u9"
	otherKey.Key = "k-other"
	mixed.Reference = "r0001"
	answers := f.credit(t, otherAmount, otherAccount, otherKey, mixed, testCredit(3))
	for i, want := range []error{hongbao.ErrKeyReused, hongbao.ErrKeyReused, hongbao.ErrReferenceReused, hongbao.ErrReferenceReused} {
		require.ErrorIs(t, answers[i].Err, want)
		require.Equal(t, hongbao.Conflict, hongbao.ClassOf(answers[i].Err))
	}
	require.NoError(t, answers[4].Err, "its neighbours are booked")
	require.Equal(t, []hongbao.AccountBalance{{Currency: testCurrency, Balance: 101, Credits: 1}}, f.balances(t, "u1"))
}

func testCreditBatch(t *testing.T, f *fixture) {
	dollars := testCredit(4)
	dollars.Currency = "USD"
	answers := f.credit(t, testCredit(1), testCredit(1), dollars, testCredit(7), hongbao.Credit{Key: "a b", Amount: -1})
	require.False(t, answers[0].Repeated)
	require.True(t, answers[1].Repeated, "twice in one call")
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(answers[4].Err))
	for _, part := range []string{"key", "reference", "account", "currency", "amount"} {
		require.ErrorContains(t, answers[4].Err, part)
	}
	require.Equal(t, []hongbao.AccountBalance{
		{Currency: testCurrency, Balance: 101 + 107, Credits: 2}, {Currency: "USD", Balance: 104, Credits: 1}}, f.balances(t, "u1"))
	_, err := f.ledger.Credit(t.Context(), make([]hongbao.Credit, MaxCredits+1))
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(err))
}

func testCreditTooMuch(t *testing.T, f *fixture) {
	huge, small := testCredit(1), testCredit(4) // both of u1
	huge.Amount = hongbao.MaxAmount
	answers := f.credit(t, huge, small, testCredit(2))
	require.NoError(t, answers[0].Err)
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(answers[1].Err), "%v", answers[1].Err)
	require.NoError(t, answers[2].Err)
	answers = f.credit(t, small)
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(answers[0].Err))
	require.Equal(t, hongbao.MaxAmount, f.balances(t, "u1")[0].Balance)
}

// awayStore fails every write after the first ones, before anything of it is sent.
type awayStore struct {
	store
	after int
}

func (s *awayStore) write(ctx context.Context, fn func(txn) ([]stmt, error)) error {
	if s.after--; s.after < 0 {
		return hongbao.Outagef(hongbao.Transient, "the database is away")
	}
	return s.store.write(ctx, fn)
}

// testCreditAway loses the database while credits that can't go together are booked one by one: some are booked, so it must not be said that nothing was.
func testCreditAway(t *testing.T, f *fixture) {
	huge, small := testCredit(1), testCredit(4)
	huge.Amount = hongbao.MaxAmount
	all := []hongbao.Credit{huge, small, testCredit(2)}
	server := f.ledger.store
	f.ledger.store = &awayStore{server, 2} // all of them together, and one alone
	_, err := f.ledger.Credit(t.Context(), all)
	f.ledger.store = server
	require.True(t, hongbao.IsOutage(err))
	require.Equal(t, hongbao.Unknown, hongbao.ClassOf(err), "%v", err)
	require.Equal(t, hongbao.MaxAmount, f.balances(t, "u1")[0].Balance, "one is booked")
	answers := f.credit(t, all...)
	require.True(t, answers[0].Repeated)
	require.Equal(t, hongbao.Permanent, hongbao.ClassOf(answers[1].Err))
	require.False(t, answers[2].Repeated)
}

func testCreditTogether(t *testing.T, f *fixture) {
	const workers, credits = 8, 60
	var wg sync.WaitGroup
	errs := make([]error, workers)
	fresh := make([]int, workers)
	for w := range workers {
		wg.Go(func() {
			var all []hongbao.Credit
			for i := range credits {
				all = append(all, testCredit(i))
			}
			if w%2 == 1 {
				slices.Reverse(all)
			}
			for part := range slices.Chunk(all, 7+w) {
				answers, err := f.ledger.Credit(t.Context(), part)
				if err != nil {
					errs[w] = err
					return
				}
				for _, a := range answers {
					if a.Err == nil && !a.Repeated {
						fresh[w]++
					}
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for w := range workers {
		require.NoError(t, errs[w])
		sum += fresh[w]
	}
	require.Equal(t, credits, sum, "each was booked by one of them")
	f.credit(t)
	require.EqualValues(t, 20, f.balances(t, "u0")[0].Credits)
}

func testStatement(t *testing.T, f *fixture) {
	for i := range 30 {
		f.credit(t, testCredit(i))
	}
	page := hongbao.StatementPage{Account: "u2", Limit: 4}
	var got []string
	for {
		list, err := f.ledger.Statement(t.Context(), page)
		require.NoError(t, err)
		for _, c := range list {
			require.Equal(t, "u2", c.Account)
			got = append(got, c.Reference)
		}
		if len(list) < page.Limit {
			break
		}
		page.After = list[len(list)-1]
	}
	require.Equal(t, []string{"r0002", "r0005", "r0008", "r0011", "r0014", "r0017", "r0020", "r0023", "r0026", "r0029"}, got)
}

func testCreditDifferences(t *testing.T, f *fixture) {
	f.credit(t, testCredit(1), testCredit(2))
	for sql, what := range map[string]string{
		`UPDATE credit_account SET balance = balance + $1 WHERE id = 'u1'`: "sum of the credits = balance",
		`UPDATE credit SET amount = amount + $1 WHERE account = 'u2'`:      "sum of the credits = balance",
		`UPDATE credit_account SET credits = credits + $1 WHERE id = 'u2'`: "number of credits",
	} {
		f.tamper(t, stmt{sql: sql, args: []any{int64(1)}})
		list, err := f.ledger.CheckCredits(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, what, list[0].What)
		f.tamper(t, stmt{sql: sql, args: []any{int64(-1)}})
		f.credit(t)
	}
}
