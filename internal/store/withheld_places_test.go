package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A campaign is on several shards. Its withheld packets can't be released, and one is granted only while the campaign is
// paused, by a caller that has counted the user's packets on the other shards.
func TestWithheldPacketOverShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	withheldThree(t, b)
	rain := k.Keys.Campaign("rain")
	require.NoError(t, b.rdb.HSet(ctx, rain, "places", 2).Err())
	_, why, err := k.Place("rain").ReleaseWithheld(ctx)
	require.NoError(t, err)
	require.Equal(t, store.RefusedPlaces, why)
	for _, c := range []struct {
		state     string
		elsewhere int
		want      store.Refusal
	}{{store.StateOpen, store.UnknownElsewhere, store.RefusedPlaces}, {store.StateOpen, 0, store.RefusedOpen},
		{store.StatePaused, store.UnknownElsewhere, store.RefusedPlaces}, {store.StatePaused, 0, ""}} {
		require.NoError(t, b.rdb.HSet(ctx, rain, "state", c.state).Err())
		g := hongbao.Grant{Campaign: "rain", User: "u4", RequestID: "r1", Packet: firstWithheld.Number, Amount: firstWithheld.Amount}
		why, err := k.GrantWithheld(ctx, &g, store.Room{Elsewhere: c.elsewhere})
		require.NoError(t, err)
		require.Equal(t, c.want, why, c)
	}
}
