package losses

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// afterList calls do once, after the list of the withheld packets at key was read.
type afterList struct {
	key  string
	once *sync.Once
	do   func()
}

func (afterList) DialHook(next redis.DialHook) redis.DialHook { return next }

func (afterList) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h afterList) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "lrange" && cmd.Args()[1] == h.key {
			h.once.Do(h.do)
		}
		return err
	}
}

// A campaign on two shards is paused, and a person grants a withheld packet of the first one to a user. Before the
// grant, a colleague resumes the campaign, and the user's repeat gets a packet on the second shard. The grant is
// refused, also if the campaign is paused again: the request would get two packets.
func TestHoleGrantAfterAResume(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for name, c := range map[string]struct {
		again   bool
		request string
		want    string
	}{"open": {false, "r2", "pause the campaign"}, "paused again": {true, "r1", "the request id already has another packet"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "", "HONGBAO_DEPLOYMENT_SHARDS=2")
			ctx, by := t.Context(), stream.Decision{By: "ann", Why: "packets are withheld"}
			require.NoError(t, a.Store().Initialize(ctx, store.InitializeCall{Deployment: "test"}))
			apptest.Loads(t, a, "rain", hongbao.DurabilityFast, 2)
			apptest.Creates(t, a, "rain")
			rain, places := a.Store().Campaign("rain"), a.Store().Places("rain", 2)
			keys := places[0].Keys
			packet := a.Redis().LPop(ctx, keys.Stock("rain")).Val()
			require.NoError(t, a.Redis().RPush(ctx, keys.Withheld("rain"), packet).Err())
			require.NoError(t, a.Redis().HSet(ctx, keys.Campaign("rain"), "withheld", "1 10").Err())
			holes, err := places[0].Withheld(ctx)
			require.NoError(t, err)
			require.NoError(t, testkit.ErrOf(rain.Pause(ctx, by)))
			a.Redis().AddHook(afterList{key: keys.Withheld("rain"), once: &sync.Once{}, do: func() {
				require.NoError(t, testkit.ErrOf(rain.Resume(ctx, by)))
				apptest.GrantsOn(t, a, places[1].Shard, "u42")
				if c.again {
					require.NoError(t, testkit.ErrOf(rain.Pause(ctx, by)))
				}
			}})
			_, err = Of(a).GrantHole(ctx, HoleGrant{Campaign: "rain", Packet: holes[0].Number, User: "u42", RequestID: c.request, Decision: by})
			require.ErrorContains(t, err, c.want)
			require.Empty(t, a.Redis().HGet(ctx, keys.Receipts("rain"), "u42").Val())
		})
	}
}

// A person grants a withheld packet, and Redis loses the grant in a second failover. The packet is withheld again. The
// list says that it was granted, and the packets are not released before it is granted again.
func TestHoleGrantThatRedisHasLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	ctx, by := t.Context(), stream.Decision{By: "ann", Why: "the app's log"}
	require.NoError(t, a.Store().Initialize(ctx, store.InitializeCall{Deployment: "test"}))
	apptest.Loads(t, a, "rain", hongbao.DurabilityFast, 1)
	apptest.Creates(t, a, "rain")
	keys := a.Store().Home("rain").Keys
	packet := a.Redis().LPop(ctx, keys.Stock("rain")).Val()
	withhold := func() {
		require.NoError(t, a.Redis().RPush(ctx, keys.Withheld("rain"), packet).Err())
		require.NoError(t, a.Redis().HSet(ctx, keys.Campaign("rain"), "withheld", "1 10").Err())
	}
	withhold()
	holes, err := Of(a).ListHoles(ctx, "rain")
	require.NoError(t, err)
	require.Empty(t, holes[0].Again)
	grant := HoleGrant{Campaign: "rain", Packet: holes[0].Packets[0].Number, User: "u42", RequestID: "r1", Decision: by}
	_, err = Of(a).GrantHole(ctx, grant)
	require.NoError(t, err)
	require.NoError(t, a.Redis().HDel(ctx, keys.Receipts("rain"), "u42").Err())
	withhold()

	holes, err = Of(a).ListHoles(ctx, "rain")
	require.NoError(t, err)
	require.Equal(t, []HoleAgain{{grant.Packet, "u42", "ann"}}, holes[0].Again)
	_, err = Of(a).ReleaseHoles(ctx, "rain", by)
	require.ErrorContains(t, err, "nothing was released: grant the packet again first")
	require.EqualValues(t, 1, a.Redis().LLen(ctx, keys.Withheld("rain")).Val())
	_, err = Of(a).GrantHole(ctx, grant)
	require.NoError(t, err)
	holes, err = Of(a).ListHoles(ctx, "rain")
	require.NoError(t, err)
	require.Empty(t, holes)
	_, err = Of(a).ReleaseHoles(ctx, "rain", by)
	require.NoError(t, err)
}
