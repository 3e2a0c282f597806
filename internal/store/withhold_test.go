package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A client that lost the reply sends the script again, when fewer packets are left than the call asks for. The shard
// remains undamaged: its packets return to the stock, and users get all of them.
func TestRepeatedWithholdingNearTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 15))
	b.begin(t)
	for _, left := range []int{5, 0, 0} {
		require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Front: []int{10}}))
		require.EqualValues(t, left, b.rdb.LLen(t.Context(), b.k.Keys.Stock("rain")).Val())
		n, _, err := b.k.Place("rain").CountWithheld(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 15-left, n)
	}
	b.thaw(t)
	still, why, err := b.k.Place("rain").ReleaseWithheld(t.Context())
	require.NoError(t, err)
	require.Empty(t, why)
	require.Zero(t, still)
	for i := range 15 {
		require.Equal(t, hongbao.OutcomeGranted, b.grab(t, "rain", fmt.Sprintf("u%d/r%d", i, i))[0].Outcome)
	}
}
