package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// The window says that Redis lost the campaign, even where only a stub is left, or where one of several places lost
// it.
func TestWindowOfALostCampaign(t *testing.T) {
	t.Parallel()
	rdb, st, places := over(t)
	window := func() store.Window {
		t.Helper()
		w, err := st.Campaign("rain").Window(t.Context())
		require.NoError(t, err)
		return w
	}
	require.False(t, window().Lost)
	last := places[len(places)-1]
	require.NoError(t, rdb.HSet(t.Context(), last.Keys.Campaign("rain"), "state", "frozen").Err())
	require.True(t, window().Lost, "a server may remember it when the campaign is ended")
	require.NoError(t, last.EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 15}))
	require.True(t, window().Lost, "the home has all its data, another place lost it")

	require.NoError(t, rdb.Del(t.Context(), places[0].Keys.Campaign("rain")).Err())
	require.NoError(t, places[0].EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 15}))
	w := window()
	require.True(t, w.Lost)
	require.Equal(t, "ended", w.Status())
}
