package load

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A load is killed at one of its script calls, before or after the script runs. If a place is open at that time, all
// packets are loaded. A second load completes the first, with each packet and code once.
func TestLoadDiesOnAnyPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, places := range []int{1, 3, 4} {
		died := map[int]bool{} // places that were half loaded at a kill
		for _, ran := range []bool{false, true} {
			for lives := 0; ; lives++ {
				c, plan, hash := coupons(t, fmt.Sprintf("coffee-%d-%d-%v", places, lives, ran), places)
				b.mortal.lives, b.mortal.ran = lives, ran
				err := b.loader(t, b.mortal.client).Load(t.Context(), c, plan, hash, nil)
				if err == nil {
					require.Greater(t, lives, places*8, "it dies at many places")
					break
				}
				require.ErrorIs(t, err, errKilled)
				b.checkHalf(t, &c, died)
				require.NoError(t, b.loader(t, b.rdb).Load(t.Context(), c, plan, hash, nil))
				b.loadedWhole(t, &c, plan)
				require.NoError(t, b.loader(t, b.rdb).Load(t.Context(), c, plan, hash, nil), "a repeat")
				b.loadedWhole(t, &c, plan)
			}
		}
		require.Len(t, died, places)
	}
}

// checkHalf checks the state that a killed load leaves, and records half loaded places in died.
func (b *bundle) checkHalf(t *testing.T, c *hongbao.Campaign, died map[int]bool) {
	t.Helper()
	st, found, err := b.store.Campaign(c.ID).Status(t.Context())
	require.NoError(t, err)
	if !found {
		return
	}
	if slices.Contains(b.states(t, c), store.StateOpen) {
		require.EqualValues(t, packets, st.Loaded, "no place opens before all packets are loaded")
	}
	require.EqualValues(t, packets, st.Packets)
	require.Equal(t, c.Total, st.LeftAmount, "no chunk reveals its sum")
	if c.Places() == 1 {
		died[0] = died[0] || st.Loaded > 0 && st.Loaded < packets
		return
	}
	require.Contains(t, []string{"missing", store.StateLoading, store.StateOpen}, st.State)
	for j, p := range st.Places {
		share := int64(len(Deal(make([]hongbao.Amount, packets), c.Places(), j)))
		died[j] = died[j] || p.Loaded > 0 && p.Loaded < share
	}
}

var ann = stream.Decision{By: "ann", Why: "test"}

// A pause or a resume is killed after some of the four places. The repeated call changes the others.
func TestPauseDiesBetweenPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 4)
	loader := b.loader(t, b.rdb)
	require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
	dying := b.store.Over(b.mortal.client).Campaign(c.ID)
	for lives := range 4 {
		for _, ran := range []bool{false, true} {
			b.mortal.lives, b.mortal.ran = lives, ran
			require.ErrorIs(t, testkit.ErrOf(dying.Pause(t.Context(), ann)), errKilled)
			moved := lives
			if ran {
				moved++
			}
			states := b.states(t, &c) // sorted, because the calls to the places are concurrent
			slices.Sort(states)
			require.Equal(t, slices.Concat(slices.Repeat([]string{store.StateOpen}, 4-moved), slices.Repeat([]string{store.StatePaused}, moved)), states)
			st, _, err := b.store.Campaign(c.ID).Status(t.Context())
			require.NoError(t, err)
			if moved < 4 {
				require.Equal(t, store.StateOpen, st.State, "it still grants")
			} else {
				require.Equal(t, store.StatePaused, st.State)
			}
			changed, err := b.store.Campaign(c.ID).Pause(t.Context(), ann)
			require.NoError(t, err)
			require.Equal(t, moved < 4, changed)
			changed, err = b.store.Campaign(c.ID).Pause(t.Context(), ann)
			require.NoError(t, err)
			require.False(t, changed)
			require.Equal(t, slices.Repeat([]string{store.StatePaused}, 4), b.states(t, &c))

			b.mortal.lives = lives
			require.ErrorIs(t, testkit.ErrOf(dying.Resume(t.Context(), ann)), errKilled)
			require.NoError(t, testkit.ErrOf(b.store.Campaign(c.ID).Resume(t.Context(), ann)))
			b.loadedWhole(t, &c, plan)
		}
	}
}

// A campaign that can't be paused on one place is paused on none. If a place is lost, the others are paused.
func TestPauseOfPlacesThatDiffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 3)
	loader, places := b.loader(t, b.rdb), b.store.Places("coffee", 3)
	require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
	set := func(j int, state string) {
		require.NoError(t, b.rdb.HSet(t.Context(), places[j].Keys.Campaign(c.ID), "state", state).Err())
	}
	set(2, store.StateLoading)
	_, err := b.store.Campaign(c.ID).Pause(t.Context(), ann)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("on shard %d, one of 3", places[2].Index()))
	require.Equal(t, []string{store.StateOpen, store.StateOpen, store.StateLoading}, b.states(t, &c))

	set(1, store.StateFrozen)
	set(2, store.StateOpen)
	require.ErrorIs(t, testkit.ErrOf(b.store.Campaign(c.ID).Pause(t.Context(), ann)), store.ErrLost)
	require.Equal(t, []string{store.StatePaused, store.StateFrozen, store.StatePaused}, b.states(t, &c))
	st, _, err := b.store.Campaign(c.ID).Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.StateFrozen, st.State)
	require.ErrorIs(t, loader.Load(t.Context(), c, plan, hash, nil), store.ErrLost)
}

// unreachable is a hook that refuses all commands to one shard, as if its server were down.
type unreachable struct{ tag string }

func (unreachable) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a unreachable) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a.reach(func() error { return next(ctx, cmd) }, cmd)
	}
}

func (a unreachable) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return a.reach(func() error { return next(ctx, cmds) }, cmds...)
	}
}

func (a unreachable) reach(call func() error, cmds ...redis.Cmder) error {
	if !strings.Contains(fmt.Sprint(cmds), a.tag) {
		return call()
	}
	err := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// A campaign is paused while one place is lost and one does not answer. The error is an outage, so the caller retries
// and pauses the silent place when it is back.
func TestPauseOfALostPlaceAndOneThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 3)
	loader, places := b.loader(t, b.rdb), b.store.Places("coffee", 3)
	require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
	require.NoError(t, b.rdb.HSet(t.Context(), places[1].Keys.Campaign(c.ID), "state", store.StateFrozen).Err())
	client := testkit.Redis(t).Client(t)
	client.AddHook(unreachable{strings.TrimSuffix(places[2].Keys.Meta(), "meta")})
	_, err := b.store.Over(client).Campaign(c.ID).Pause(t.Context(), ann)
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("on shard %d, one of 3", places[2].Index()))
	require.Equal(t, []string{store.StatePaused, store.StateFrozen, store.StateOpen}, b.states(t, &c))
	_, err = b.store.Campaign(c.ID).Pause(t.Context(), ann)
	require.ErrorIs(t, err, store.ErrLost)
	require.Equal(t, []string{store.StatePaused, store.StateFrozen, store.StatePaused}, b.states(t, &c))
}

// Redis has lost a loaded campaign on one place. A repeated load fails, because it would deal that place's packets a
// second time.
func TestLoadOfACampaignThatAPlaceHasLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for lost := range 3 {
		c, plan, hash := coupons(t, fmt.Sprintf("coffee-%d", lost), 3)
		loader, k := b.loader(t, b.rdb), b.store.Places(c.ID, 3)[lost]
		require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
		require.NoError(t, b.rdb.Del(t.Context(), k.Keys.Campaign(c.ID), k.Keys.Stock(c.ID), k.Keys.Codes(c.ID)).Err())
		require.ErrorIs(t, loader.Load(t.Context(), c, plan, hash, nil), store.ErrLost)
		require.Empty(t, b.states(t, &c)[lost], "nothing was written")
		st, found, err := b.store.Campaign(c.ID).Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, lost != 0, found)
		if found {
			require.Equal(t, "missing", st.State)
		}
	}
}

// Redis has lost some codes on one place. A repeated load restores them.
func TestCodesOfAPlaceComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 4)
	loader, k := b.loader(t, b.rdb), b.store.Places("coffee", 4)[2]
	require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
	require.NoError(t, b.rdb.HDel(t.Context(), k.Keys.Codes(c.ID), "3", "19").Err())
	require.NoError(t, loader.Load(t.Context(), c, plan, hash, nil))
	b.loadedWhole(t, &c, plan)
}

func TestLoadWantsMoreShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, plan, hash := coupons(t, "coffee", 5)
	err := b.loader(t, b.rdb).Load(t.Context(), c, plan, hash, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "wants 5 shards, the deployment has 4")
}
