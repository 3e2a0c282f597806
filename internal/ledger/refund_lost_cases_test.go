package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// lostOf returns the decision to refund campaign rain, after granted of its 10 packets were granted.
func lostOf(granted int64) model.LostRefund {
	return model.LostRefund{Campaign: "rain", Closes: []payment.Close{{Shard: 3}},
		Amount:   fundedFor(10) - fundedFor(granted),
		Decision: by("ann", "no file is left")}
}

// testRefundLost refunds a campaign that Redis has lost. It refunds the exact rest once, and records who decided so and
// why.
func testRefundLost(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	twice := grant("rain", 4) // Redis granted packet 4 to another user, too
	twice.User = "mallory"
	f.settles(t, twice)

	for says, alter := range map[string]func(*model.LostRefund){
		"who decides":                  func(o *model.LostRefund) { o.By = "" },
		"the reason is required":       func(o *model.LostRefund) { o.Why = "" },
		"1 of its grants wait":         func(*model.LostRefund) {},
		"4 grants (packet 4 for one) ": func(o *model.LostRefund) { o.Closes = []payment.Close{{Shard: 2}} },
		ErrNoCampaign.Error():          func(o *model.LostRefund) { o.Campaign = "typo" },
	} {
		o := lostOf(4)
		alter(&o)
		_, err := f.ledger.RefundLost(t.Context(), o)
		require.ErrorContains(t, err, says)
	}
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: f.open(t)[0].ID, Decision: by("ann", "dealt twice")}, nil)
	require.NoError(t, err)
	for _, wrong := range []hongbao.Amount{0, 1, lostOf(4).Amount - 1, lostOf(4).Amount + 1, fundedFor(10)} {
		o := lostOf(4)
		o.Amount = wrong
		_, err := f.ledger.RefundLost(t.Context(), o)
		require.ErrorContains(t, err, "nothing was moved")
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	_, _, err = f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 5, 5)))
	require.NoError(t, err)
	_, err = f.ledger.RefundLost(t.Context(), lostOf(4))
	require.ErrorIs(t, err, payment.ErrSettling, "a remote may have booked packet 5")
	require.NoError(t, f.Settler.Forget(t.Context(), 1, time.Time{}, grantsOf("rain", 5, 5)))
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))

	r, err := f.ledger.RefundLost(t.Context(), lostOf(4))
	require.NoError(t, err)
	require.Equal(t, payment.Refund{
		Campaign: "rain", Currency: testCurrency, Sponsor: "acme", Amount: lostOf(4).Amount, Packets: 6,
		Closes: []payment.Close{{Shard: 3}}, By: "ann", Why: "no file is left", Created: r.Created,
	}, r)
	f.refundedOnce(t, closeOf("rain", 10, 4))
	stored, found, err := f.ledger.RefundOf(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, r, stored)
	totals, _, err := f.books().Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, []any{true, []payment.Close{{Shard: 3}}, "ann", "no file is left"}, []any{totals.Closed, totals.Closes,
		totals.By, totals.Why})

	f.settles(t, grantsOf("rain", 3, 6)...) // packets 3 and 4 are settled already; 5 and 6 come too late
	list := f.open(t)
	require.Len(t, list, 2)
	require.Equal(t, AfterRefund, list[0].Reason)
	again := lostOf(4)
	again.By, again.Why = "bob", "I did not know"
	second, err := f.ledger.RefundLost(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, r, second, "the first decision stays")
	f.refundedOnce(t, closeOf("rain", 10, 4))
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// testRefundLostTogether refunds a campaign in ten concurrent calls, through two ledgers.
func testRefundLostTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	second := newFixture(t, f.config)
	var group errgroup.Group
	got := make([]payment.Refund, 10)
	for i := range got {
		group.Go(func() (err error) {
			got[i], err = []*fixture{f, second}[i%2].ledger.RefundLost(context.Background(), lostOf(4))
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, r := range got {
		require.Equal(t, got[0], r, "all callers get the same refund")
	}
	f.refundedOnce(t, closeOf("rain", 10, 4))
}

func testRefundLostDies(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	inner, deaths := f.ledger.tables.Store, 0
	for {
		f.ledger.tables.Store = &dying{Store: inner, after: deaths}
		_, err := f.ledger.RefundLost(t.Context(), lostOf(4))
		f.ledger.tables.Store = inner
		if err == nil {
			break // committed, but the caller does not get the result
		}
		require.ErrorIs(t, err, errDied)
		require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
		deaths++
	}
	require.Greater(t, deaths, 5, "the locks and five statements")
	_, err := f.ledger.RefundLost(t.Context(), lostOf(4))
	require.NoError(t, err)
	f.refundedOnce(t, closeOf("rain", 10, 4))
}
