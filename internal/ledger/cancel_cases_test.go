package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

func testCancel(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	first, err := f.ledger.Cancel(t.Context(), "rain", []int{3})
	require.NoError(t, err)
	require.Equal(t, fundedFor(10), first.Amount)
	require.EqualValues(t, 10, first.Packets)
	again, err := f.ledger.Cancel(t.Context(), "rain", []int{3})
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, model.MoneyRefunded, f.stored(t, "rain").State)
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
	require.Zero(t, f.balance(t, tables.SponsorAccount("acme", testCurrency)))
	f.holds(t, "rain", nil)
	require.ErrorContains(t, f.ledger.BeginLoad(t.Context(), "rain"), "refunded or cancelled")
	require.Nil(t, f.Handle(t.Context(), testkit.Batch([]hongbao.Grant{grant("rain", 1)})))
	require.Equal(t, AfterRefund, f.open(t)[0].Reason, "a forged grant is not paid")

	f.create(t, "snow", 10)
	require.NoError(t, f.ledger.BeginLoad(t.Context(), "snow"))
	loading := f.stored(t, "snow").Loading
	require.NotZero(t, loading)
	require.NoError(t, f.ledger.BeginLoad(t.Context(), "snow"), "a load continues")
	require.Equal(t, loading, f.stored(t, "snow").Loading)
	for range 2 {
		_, err = f.ledger.Cancel(t.Context(), "snow", []int{3})
		require.ErrorIs(t, err, ErrLoadingBegun)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	require.Equal(t, fundedFor(10), f.balance(t, tables.PoolAccount("snow")))

	f.tamper(t, db.Stmt{SQL: `UPDATE campaign SET state = 'refunded', refunded = funded WHERE id = 'snow'`})
	_, err = f.ledger.Cancel(t.Context(), "snow", []int{3})
	require.ErrorContains(t, err, "is refunded already")
	require.NotErrorIs(t, err, ErrLoadingBegun)
	_, err = f.ledger.Cancel(t.Context(), "nothing", []int{3})
	require.ErrorIs(t, err, ErrNoCampaign)
	require.ErrorIs(t, f.ledger.BeginLoad(t.Context(), "nothing"), ErrNoCampaign)
}

// testUnrefunded lists the campaigns that keep money in their pools, in the order in which their windows end.
func testUnrefunded(t *testing.T, f *fixture) {
	ends := time.Date(2026, 2, 17, 20, 0, 0, 0, time.UTC)
	for id, after := range map[string]time.Duration{"rain": 2 * time.Hour, "snow": 0, "sleet": time.Hour} {
		c := testCampaign(t, id, 10)
		c.Spec.From, c.Spec.To = ends.Add(-time.Hour), ends.Add(after).In(time.FixedZone("CST", 8*3600))
		_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, c.Spec))
		require.NoError(t, err)
	}
	list, err := f.ledger.Unrefunded(t.Context())
	require.NoError(t, err)
	snow, sleet := Unrefunded{"snow", ends}, Unrefunded{"sleet", ends.Add(time.Hour)}
	rain := Unrefunded{"rain", ends.Add(2 * time.Hour)}
	require.Equal(t, []Unrefunded{snow, sleet, rain}, list)
	_, err = f.ledger.Cancel(t.Context(), "sleet", []int{3})
	require.NoError(t, err)
	list, err = f.ledger.Unrefunded(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Unrefunded{snow, rain}, list)
}

// testCancelAmongLoads cancels and loads a campaign at once: exactly one of the two succeeds.
func testCancelAmongLoads(t *testing.T, f *fixture) {
	for i := range 8 {
		id := fmt.Sprint("rain", i)
		f.create(t, id, 10)
		var load, cancelled error
		var group errgroup.Group
		group.Go(func() error { load = f.ledger.BeginLoad(context.Background(), id); return nil })
		group.Go(func() error { _, cancelled = f.ledger.Cancel(context.Background(), id, []int{3}); return nil })
		require.NoError(t, group.Wait())
		c := f.stored(t, id)
		if load == nil {
			require.ErrorIs(t, cancelled, ErrLoadingBegun)
			require.Equal(t, model.MoneyFunded, c.State)
			require.Equal(t, fundedFor(10), f.balance(t, tables.PoolAccount(id)))
		} else {
			require.NoError(t, cancelled)
			require.Equal(t, model.MoneyRefunded, c.State)
			require.Zero(t, c.Loading)
		}
	}
}
