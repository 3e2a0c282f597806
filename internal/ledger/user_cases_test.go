package ledger

import (
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func testUserData(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	ctx := t.Context()
	paid, waiting := grant("rain", 1), grant("rain", 2)
	f.settles(t, paid)
	_, _, err := f.Settler.Begin(ctx, asking("w1", 1), testkit.Batch([]hongbao.Grant{waiting}))
	require.NoError(t, err)
	other := paid
	other.User = "thief"
	f.Settler.Handle(ctx, testkit.Batch([]hongbao.Grant{other}))

	balances, err := f.ledger.UserBalances(ctx, paid.User)
	require.NoError(t, err)
	require.Equal(t, []UserBalance{{"CNY", paid.Amount}}, balances)
	none, err := f.ledger.UserBalances(ctx, "stranger")
	require.NoError(t, err)
	require.Empty(t, none)
	for _, user := range []string{paid.User, "thief"} { // in either version
		quarantined, err := f.ledger.UserQuarantine(ctx, user)
		require.NoError(t, err)
		require.Len(t, quarantined, 1, user)
	}
	booked, err := f.ledger.UserPaid(ctx, "rain", paid.User)
	require.NoError(t, err)
	require.Len(t, booked, 1)
	require.WithinDuration(t, time.Now(), booked[paid.Packet], time.Minute)
	pending, err := f.ledger.UserPending(ctx, waiting.User)
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.Equal(t, waiting.Packet, pending[0].Grant.Packet)
}
