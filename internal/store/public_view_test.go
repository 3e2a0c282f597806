package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// One of three places loses the campaign and is ended from the ledger. Then the campaign's home (place 0)
// also loses it, and has only a stub left. Each time, the window says that data is lost.
func TestWindowOfALostCampaign(t *testing.T) {
	t.Parallel()
	rdb, st, places := over(t)
	window := func() model.PublicView {
		t.Helper()
		w, err := st.Campaign("rain").Window(t.Context())
		require.NoError(t, err)
		return w
	}
	require.False(t, window().Lost)
	last := places[len(places)-1]
	require.NoError(t, rdb.HSet(t.Context(), last.Keys.Campaign("rain"), "state", "frozen").Err())
	require.True(t, window().Lost, "one place is frozen")
	require.NoError(t, last.EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 15}))
	require.True(t, window().Lost, "one place is ended from the ledger")

	require.NoError(t, rdb.Del(t.Context(), places[0].Keys.Campaign("rain")).Err())
	require.NoError(t, places[0].EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 15}))
	w := window()
	require.True(t, w.Lost)
	require.Equal(t, "ended", w.Status())
}
