package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

// funded returns the test case with clients c1 and c2 funded to the maximum first.
func funded(run func(*testing.T, *fixture)) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		for _, client := range []string{"c1", "c2"} {
			for _, currency := range []string{testCurrency, "USD"} {
				f.fund(t, client, currency, hongbao.MaxAmount)
			}
		}
		run(t, f)
	}
}

func (f *fixture) fund(t *testing.T, client, currency string, amount hongbao.Amount) model.Fund {
	t.Helper()
	fund, err := f.ledger.Fund(t.Context(), model.Funding{Client: client, ID: fmt.Sprint(currency, amount),
		Currency: currency, Amount: amount, Decision: by("ann", "test")})
	require.NoError(t, err)
	return fund
}

// testCredit returns the n-th credit of client c1.
func testCredit(n int) payment.Credit {
	return payment.Credit{
		Client: "c1",
		Key:    fmt.Sprintf("k%04d", n), Reference: fmt.Sprintf("r%04d", n), Account: fmt.Sprintf("u%d", n%3),
		Currency: testCurrency,
		Amount:   hongbao.Amount(100 + n),
	}
}

func (f *fixture) credit(t *testing.T, credits ...payment.Credit) []payment.Credited {
	t.Helper()
	answers, err := f.ledger.Credit(t.Context(), credits)
	require.NoError(t, err)
	require.Len(t, answers, len(credits))
	differences, err := f.books().CheckCredits(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	return answers
}

func (f *fixture) balances(t *testing.T, account string) []payment.AccountBalance {
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
	require.Equal(t, first.Credit, again.Credit, "exactly the first answer")
	got, found, err := f.ledger.CreditByReference(t.Context(), "c1", "r0001")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, first.Credit, got)
	require.Equal(t, []payment.AccountBalance{{Currency: testCurrency, Balance: 101, Credits: 1}}, f.balances(t, "u1"))
	_, found, err = f.ledger.CreditByReference(t.Context(), "c1", "r0002")
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
	for i, want := range []error{payment.ErrKeyReused, payment.ErrKeyReused, payment.ErrReferenceReused,
		payment.ErrReferenceReused} {
		require.ErrorIs(t, answers[i].Err, want)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(answers[i].Err))
	}
	require.NoError(t, answers[4].Err, "the other credits of the call are booked")
	require.Equal(t, []payment.AccountBalance{{Currency: testCurrency, Balance: 101, Credits: 1}}, f.balances(t, "u1"))
}

func testCreditBatch(t *testing.T, f *fixture) {
	dollars := testCredit(4)
	dollars.Currency = "USD"
	answers := f.credit(t, testCredit(1), testCredit(1), dollars, testCredit(7), payment.Credit{Key: "a b", Amount: -1})
	require.False(t, answers[0].Repeated)
	require.True(t, answers[1].Repeated, "twice in one call")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(answers[4].Err))
	for _, part := range []string{"client", "key", "reference", "account", "currency", "amount"} {
		require.ErrorContains(t, answers[4].Err, part)
	}
	require.Equal(t, []payment.AccountBalance{
		{Currency: testCurrency, Balance: 101 + 107, Credits: 2}, {Currency: "USD", Balance: 104, Credits: 1}},
		f.balances(t, "u1"))
	_, err := f.ledger.Credit(t.Context(), make([]payment.Credit, MaxCredits+1))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

func testCreditTooMuch(t *testing.T, f *fixture) {
	huge, small := testCredit(1), testCredit(4) // both of u1
	huge.Amount, small.Client = hongbao.MaxAmount, "c2"
	third := testCredit(2)
	third.Client = "c2"
	answers := f.credit(t, huge, small, third)
	require.NoError(t, answers[0].Err)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(answers[1].Err), "%v", answers[1].Err)
	require.NoError(t, answers[2].Err)
	answers = f.credit(t, small)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(answers[0].Err))
	require.Equal(t, hongbao.MaxAmount, f.balances(t, "u1")[0].Balance)
}

// downStore lets the first writes through. Later writes fail before anything is sent.
type downStore struct {
	db.Store
	after int
}

func (s *downStore) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	if s.after--; s.after < 0 {
		return hongbao.Outagef(hongbao.ClassTransient, "the database is down")
	}
	return s.Store.Write(ctx, fn)
}

// testCreditDown loses the database while credits are booked one by one. Some credits are booked, so the error must be
// Unknown.
func testCreditDown(t *testing.T, f *fixture) {
	huge, small := testCredit(1), testCredit(4)
	third := testCredit(2)
	huge.Amount, small.Client, third.Client = hongbao.MaxAmount, "c2", "c2"
	all := []payment.Credit{huge, small, third}
	server := f.ledger.tables.Store
	f.ledger.tables.Store = &downStore{server, 2} // the write of all credits together and the write of the first one
	_, err := f.ledger.Credit(t.Context(), all)
	f.ledger.tables.Store = server
	require.True(t, hongbao.IsOutage(err))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.Equal(t, hongbao.MaxAmount, f.balances(t, "u1")[0].Balance, "one is booked")
	answers := f.credit(t, all...)
	require.True(t, answers[0].Repeated)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(answers[1].Err))
	require.False(t, answers[2].Repeated)
}

func testCreditTogether(t *testing.T, f *fixture) {
	const workers, credits = 8, 60
	var wg sync.WaitGroup
	errs := make([]error, workers)
	fresh := make([]int, workers)
	for w := range workers {
		wg.Go(func() {
			var all []payment.Credit
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
	require.Equal(t, credits, sum, "each credit was booked by exactly one worker")
	f.credit(t)
	require.EqualValues(t, 20, f.balances(t, "u0")[0].Credits)
}
