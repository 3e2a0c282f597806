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
