package campaigns

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// A load that dies at any of its scripts, before it or after it has run, has opened no place unless all are full;
// another one goes on, and deals each packet and code once.
func TestLoadDiesOnAnyPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, places := range []int{1, 3, 4} {
		died := map[int]bool{} // places that were half loaded then
		for _, ran := range []bool{false, true} {
			for lives := 0; ; lives++ {
				c, plan, hash := coupons(t, fmt.Sprintf("coffee-%d-%d-%v", places, lives, ran), places)
				b.mortal.lives, b.mortal.ran = lives, ran
				err := b.store(t, b.mortal.client).Load(t.Context(), c, plan, hash, nil)
				if err == nil {
					require.Greater(t, lives, places*8, "it dies at many places")
					break
				}
				require.ErrorIs(t, err, errKilled)
				b.checkHalf(t, &c, died)
				require.NoError(t, b.store(t, b.rdb).Load(t.Context(), c, plan, hash, nil))
				b.loadedWhole(t, &c, plan)
				require.NoError(t, b.store(t, b.rdb).Load(t.Context(), c, plan, hash, nil), "a repeat")
				b.loadedWhole(t, &c, plan)
			}
		}
		require.Len(t, died, places)
	}
}

// checkHalf looks at a load that died.
func (b *bundle) checkHalf(t *testing.T, c *hongbao.Campaign, died map[int]bool) {
	t.Helper()
	st, found, err := b.store(t, b.rdb).Status(t.Context(), c.ID)
	require.NoError(t, err)
	if !found {
		return
	}
	if slices.Contains(b.states(t, c), Open) {
		require.EqualValues(t, packets, st.Loaded, "all is loaded before it opens")
	}
	require.EqualValues(t, packets, st.Packets)
	require.Equal(t, c.Total, st.LeftAmount, "no chunk tells its sum")
	if c.Places() == 1 {
		died[0] = died[0] || st.Loaded > 0 && st.Loaded < packets
		return
	}
	require.Contains(t, []string{missing, Loading, Open}, st.State)
	for j, p := range st.Places {
		share := int64(len(Deal(make([]hongbao.Amount, packets), c.Places(), j)))
		died[j] = died[j] || p.Loaded > 0 && p.Loaded < share
	}
}

// A pause and a resume that die between two places are repeated.
func TestPauseDiesBetweenPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 4)
	store := b.store(t, b.rdb)
	require.NoError(t, store.Load(t.Context(), c, plan, hash, nil))
	dying := b.store(t, b.mortal.client)
	for lives := range 4 {
		for _, ran := range []bool{false, true} {
			b.mortal.lives, b.mortal.ran = lives, ran
			require.ErrorIs(t, dying.Pause(t.Context(), c.ID, "ann", "test"), errKilled)
			moved := lives
			if ran {
				moved++
			}
			states := b.states(t, &c) // the places are moved at once, in any order
			slices.Sort(states)
			require.Equal(t, slices.Concat(slices.Repeat([]string{Open}, 4-moved), slices.Repeat([]string{Paused}, moved)), states)
			st, _, err := store.Status(t.Context(), c.ID)
			require.NoError(t, err)
			if moved < 4 {
				require.Equal(t, Open, st.State, "it still grants")
			} else {
				require.Equal(t, Paused, st.State)
			}
			require.NoError(t, store.Pause(t.Context(), c.ID, "ann", "test"))
			require.NoError(t, store.Pause(t.Context(), c.ID, "ann", "test"))
			require.Equal(t, slices.Repeat([]string{Paused}, 4), b.states(t, &c))

			b.mortal.lives = lives
			require.ErrorIs(t, dying.Resume(t.Context(), c.ID, "ann", "test"), errKilled)
			require.NoError(t, store.Resume(t.Context(), c.ID, "ann", "test"))
			b.loadedWhole(t, &c, plan)
		}
	}
}

// What can't be paused as a whole is not paused in part; a place that is lost keeps the others from nothing.
func TestPauseOfPlacesThatDiffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 3)
	store, places := b.store(t, b.rdb), b.layout.Places("coffee", 3)
	require.NoError(t, store.Load(t.Context(), c, plan, hash, nil))
	set := func(j int, state string) {
		require.NoError(t, b.rdb.HSet(t.Context(), places[j].Campaign(c.ID), "state", state).Err())
	}
	set(2, Loading)
	err := store.Pause(t.Context(), c.ID, "ann", "test")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("on shard %d, one of 3", places[2].Index()))
	require.Equal(t, []string{Open, Open, Loading}, b.states(t, &c))

	set(1, Frozen)
	set(2, Open)
	require.ErrorIs(t, store.Pause(t.Context(), c.ID, "ann", "test"), shards.ErrLost)
	require.Equal(t, []string{Paused, Frozen, Paused}, b.states(t, &c))
	st, _, err := store.Status(t.Context(), c.ID)
	require.NoError(t, err)
	require.Equal(t, Frozen, st.State)
	require.ErrorIs(t, store.Load(t.Context(), c, plan, hash, nil), shards.ErrLost)
}

// Where one place has lost the campaign, a load would deal its packets again.
func TestLoadOfACampaignThatAPlaceHasLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for lost := range 3 {
		c, plan, hash := coupons(t, fmt.Sprintf("coffee-%d", lost), 3)
		store, k := b.store(t, b.rdb), b.layout.Places(c.ID, 3)[lost]
		require.NoError(t, store.Load(t.Context(), c, plan, hash, nil))
		require.NoError(t, b.rdb.Del(t.Context(), k.Campaign(c.ID), k.Stock(c.ID), k.Codes(c.ID)).Err())
		require.ErrorIs(t, store.Load(t.Context(), c, plan, hash, nil), shards.ErrLost)
		require.Empty(t, b.states(t, &c)[lost], "nothing was written")
		st, found, err := store.Status(t.Context(), c.ID)
		require.NoError(t, err)
		require.Equal(t, lost != 0, found)
		if found {
			require.Equal(t, missing, st.State)
		}
	}
}

// Codes that Redis has lost on one place come back there.
func TestCodesOfAPlaceComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 4)
	store, k := b.store(t, b.rdb), b.layout.Places("coffee", 4)[2]
	require.NoError(t, store.Load(t.Context(), c, plan, hash, nil))
	require.NoError(t, b.rdb.HDel(t.Context(), k.Codes(c.ID), "3", "19").Err())
	require.NoError(t, store.Load(t.Context(), c, plan, hash, nil))
	b.loadedWhole(t, &c, plan)
}

func TestLoadWantsMoreShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 5)
	err := b.store(t, b.rdb).Load(t.Context(), c, plan, hash, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "wants 5 shards, the deployment has 4")
}
