package ledger

import (
	"testing"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func testLacks(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	ctx := t.Context()
	lacks := func() (packets []int64) {
		t.Helper()
		list, err := f.ledger.Lacks(ctx, append(grantsOf("rain", 1, 5), grantsOf("unknown", 1, 1)...))
		require.NoError(t, err)
		for _, g := range list {
			packets = append(packets, g.Packet)
			require.Equal(t, grant(g.Campaign, g.Packet), g, "each grant is returned unchanged")
		}
		return packets
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 1}, lacks())
	f.settles(t, grantsOf("rain", 1, 1)...)
	_, _, err := f.Settler.Begin(ctx, asking("w1", 1), testkit.Batch(grantsOf("rain", 2, 2)))
	require.NoError(t, err)
	other := grant("rain", 3)
	other.Amount++
	f.Settler.Handle(ctx, testkit.Batch([]hongbao.Grant{other}))
	require.Len(t, f.open(t), 1)
	require.Equal(t, []int64{4, 5, 1}, lacks())
	none, err := f.ledger.Lacks(ctx, []hongbao.Grant{})
	require.NoError(t, err)
	require.Empty(t, none)
}

func testSettled(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	ctx := t.Context()
	settled := func(grants ...hongbao.Grant) []bool {
		t.Helper()
		list, err := f.ledger.Settled(ctx, grants)
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []bool{false, false}, settled(grant("rain", 1), grant("unknown", 1)))
	f.settles(t, grantsOf("rain", 1, 1)...)
	_, _, err := f.Settler.Begin(ctx, asking("w1", 1), testkit.Batch(grantsOf("rain", 2, 2)))
	require.NoError(t, err)
	other := grant("rain", 1)
	other.User = "somebody-else"
	otherEvent := grant("rain", 1)
	otherEvent.Seq += 1000
	wrong := grant("rain", 3)
	wrong.Amount++
	f.Settler.Handle(ctx, testkit.Batch([]hongbao.Grant{wrong}))
	require.Len(t, f.open(t), 1)
	require.Equal(t, []bool{false, true, false, false, false, false}, settled(grant("rain", 4), grant("rain", 1), other, otherEvent,
		grant("rain", 2), wrong), "pending, in quarantine and another user's or event's grant are not settled")
	require.Empty(t, settled())
}
