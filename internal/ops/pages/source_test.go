package pages

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A load of a campaign was interrupted before Redis had anything of it: the campaign can't be cancelled any more.
func TestPageOfACampaignSaysThatALoadHasBegun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	apptest.Creates(t, a, "rain")
	for _, begun := range []bool{false, true} {
		if begun {
			require.NoError(t, a.Ledger().BeginLoad(t.Context(), "rain"))
		}
		live, err := NewSource(a).Campaign(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, "created", live.State)
		require.Equal(t, begun, live.LoadBegun)
	}
}
