package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// Redis has lost a campaign's home, and the ledger has paid nothing of the campaign. Its other shard is open, so the
// home was loaded before. The campaign is lost there and can't be loaded again. The other shard continues, and the stub
// at the home names it.
func TestLostHomeOfACampaignThatNobodyWasPaidOf(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 2)
	wide := w.idAt(0)
	w.fundOver(t, wide, 0, 2)
	places := w.store.Places(wide, 2)
	w.loses(t, places[0].Shard)
	w.accepts(t)

	known, err := w.store.Campaign(wide).Places(t.Context())
	require.NoError(t, err)
	require.Equal(t, places, known)
	for j, want := range []hongbao.Outcome{hongbao.OutcomeFrozen, hongbao.OutcomeGranted} {
		answers, err := places[j].Grab(t.Context(), storetest.Call(wide, "u/r"), nil)
		require.NoError(t, err)
		require.Equal(t, want, answers[0].Outcome)
	}
}
