package ledger

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Many workers book credits of one client at once. Together they book exactly what the client's fund covers; more
// credits succeed only after another funding.
func testFundExhausted(t *testing.T, f *fixture) {
	none := f.credit(t, testCredit(1))[0]
	require.ErrorIs(t, none.Err, payment.ErrFundExhausted, "a client without a fund credits nothing")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(none.Err))
	f.fund(t, "c1", testCurrency, 10*100)
	const workers = 6
	var wg sync.WaitGroup
	var mu sync.Mutex
	booked, short := 0, 0
	for w := range workers {
		wg.Go(func() {
			var list []payment.Credit
			for i := range 4 {
				c := testCredit(w*10 + i)
				c.Amount = 100
				list = append(list, c)
			}
			answers, err := f.ledger.Credit(t.Context(), list)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				return
			}
			for _, a := range answers {
				switch {
				case a.Err == nil:
					booked++
				case errors.Is(a.Err, payment.ErrFundExhausted):
					short++
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int{10, workers*4 - 10}, []int{booked, short})
	f.credit(t) // checks that the ledger is consistent
	funds, err := f.ledger.Funds(t.Context())
	require.NoError(t, err)
	require.Equal(t, []model.Fund{{Client: "c1", Currency: testCurrency, Funded: 1000, Credited: 1000, Credits: 10}}, funds)
	require.Zero(t, funds[0].Left())
	f.fund(t, "c1", testCurrency, 50)
	large, small := testCredit(90), testCredit(91)
	large.Amount, small.Amount = 51, 50
	answers := f.credit(t, large, small)
	require.ErrorIs(t, answers[0].Err, payment.ErrFundExhausted)
	require.NoError(t, answers[1].Err, "the fund covers the small credit")
	_, found, err := f.ledger.CreditByReference(t.Context(), "c1", large.Reference)
	require.NoError(t, err)
	require.False(t, found)
}

func testFundOnce(t *testing.T, f *fixture) {
	funding := model.Funding{Client: "c1", ID: "budget-1", Currency: testCurrency, Amount: 500, Decision: by("ann",
		"the budget")}
	for range 2 {
		fund, err := f.ledger.Fund(t.Context(), funding)
		require.NoError(t, err)
		require.Equal(t, model.Fund{Client: "c1", Currency: testCurrency, Funded: 500}, fund)
	}
	other := funding
	other.Amount++
	_, err := f.ledger.Fund(t.Context(), other)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
	too := funding
	too.ID, too.Amount = "budget-2", hongbao.MaxAmount
	_, err = f.ledger.Fund(t.Context(), too)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%v", err)
	_, err = f.ledger.Fund(t.Context(), model.Funding{Client: "a b", Amount: -1})
	for _, part := range []string{"client", "id", "who decides", "currency", "amount", "the reason"} {
		require.ErrorContains(t, err, part)
	}
	funds, err := f.ledger.Funds(t.Context())
	require.NoError(t, err)
	require.Len(t, funds, 1)
}

// testRepeatOfExhausted sends repeated credits together with credits that the fund does not cover. Each credit gets its
// own result.
func testRepeatOfExhausted(t *testing.T, f *fixture) {
	f.fund(t, "c1", testCurrency, 1000)
	before := f.credit(t, testCredit(5))[0]
	require.NoError(t, before.Err)
	f.credit(t, testCredit(7))
	much, more, changed := testCredit(1), testCredit(2), testCredit(7)
	much.Amount, more.Amount = 2000, 3000
	changed.Amount++
	reused := testCredit(8)
	reused.Reference = "r0005"
	for range 2 {
		answers := f.credit(t, much, more, testCredit(3), testCredit(5), changed, reused)
		require.ErrorIs(t, answers[0].Err, payment.ErrFundExhausted)
		require.ErrorIs(t, answers[1].Err, payment.ErrFundExhausted)
		require.False(t, answers[1].Repeated)
		require.NoError(t, answers[2].Err, "the fund covers a smaller credit")
		require.NoError(t, answers[3].Err, "it was booked before")
		require.True(t, answers[3].Repeated)
		require.Equal(t, before.Credit, answers[3].Credit)
		require.ErrorIs(t, answers[4].Err, payment.ErrKeyReused)
		require.ErrorIs(t, answers[5].Err, payment.ErrReferenceReused)
	}

	// The fund is empty: the smallest new credit is refused, but repeated credits still succeed.
	_, err := f.ledger.Credit(t.Context(), []payment.Credit{{Client: "c1", Key: "rest", Reference: "rest", Account: "u1",
		Currency: testCurrency, Amount: 1000 - 105 - 107 - 103}})
	require.NoError(t, err)
	least := testCredit(0)
	least.Amount = 1
	answers := f.credit(t, least, testCredit(3), testCredit(5), testCredit(7))
	require.ErrorIs(t, answers[0].Err, payment.ErrFundExhausted)
	for _, a := range answers[1:] {
		require.NoError(t, a.Err)
		require.True(t, a.Repeated)
	}
}
