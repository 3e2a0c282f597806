package app

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// InWork counts only the entries in the hands of workers. Parked entries count as pending, but not as in work.
func TestEntriesInHandAreNotTheParkedOnes(t *testing.T) {
	t.Parallel()
	a := &App{Config: &configs.Config{}}
	status := a.sinkStatus("kafka", []standing{
		{GroupStatus: store.GroupStatus{Parked: 7, Workers: []store.Worker{{Name: "w1", Seen: time.Second, Holds: 2}}}},
		{GroupStatus: store.GroupStatus{Parked: 1, Workers: []store.Worker{{Name: "w1", Seen: time.Second, Holds: 3}}}},
	})
	require.EqualValues(t, 13, status.Pending)
	require.EqualValues(t, 5, status.InWork())
	require.EqualValues(t, 8, status.Parked)
	require.Len(t, status.Workers, 1)
	require.EqualValues(t, 5, status.Workers[0].Holds)
}

// A load of a campaign was interrupted before Redis had anything of it: the campaign can't be cancelled any more.
func TestPageOfACampaignSaysThatALoadHasBegun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	creates(t, a, "rain")
	for _, begun := range []bool{false, true} {
		if begun {
			require.NoError(t, a.ledger.BeginLoad(t.Context(), "rain"))
		}
		live, err := a.PageSource().Campaign(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, "created", live.State)
		require.Equal(t, begun, live.LoadBegun)
	}
}
