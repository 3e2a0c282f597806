package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// find tells which of the entries are forged ones.
func find(t *testing.T, f *lua.Forgeries, entries ...hongbao.Entry) []bool {
	t.Helper()
	list := make([]*hongbao.Entry, len(entries))
	for i := range entries {
		list[i] = &entries[i]
	}
	why, err := f.Find(t.Context(), list, true)
	require.NoError(t, err)
	out := make([]bool, len(why))
	for i, err := range why {
		if out[i] = err != nil; out[i] {
			require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
			require.ErrorContains(t, err, "no grab wrote it")
		}
	}
	return out
}

// one is an entry with one grant.
func one(campaign string, seq int64) hongbao.Entry {
	return hongbao.Entry{ID: "1-1", Kind: hongbao.EntryGrant, Campaign: campaign, Seq: seq, Epoch: 1, Grants: make([]hongbao.Grant, 1)}
}

// What grabs and closes really wrote is never a forged entry, whenever it is looked at; what stands behind a real close always is.
func TestForgeriesOfARealClose(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := lua.NewForgeries(b.rdb, b.space, 0)
	closed := b.closed(t, "rain", 10, 3)
	b.load(t, spec("snow", 10))
	b.grab(t, "snow", "u1", "u2", "u3")
	entries, err := lua.Entries(t.Context(), b.rdb, b.k, "-", "+")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(entries), 3)
	fresh := lua.NewForgeries(b.rdb, b.space, 0)
	for i := range entries {
		require.Equal(t, []bool{false}, find(t, f, entries[i]))
		require.NotContains(t, find(t, fresh, entries...), true)
		e := entries[i]
		if e.Campaign == "snow" {
			e.Campaign = "rain" // the same event, said to be of the campaign that is over
			require.Equal(t, []bool{true}, find(t, f, e))
		}
	}
	again := closed
	require.Equal(t, []bool{false}, find(t, f, again))
	again.Seq++
	require.Equal(t, []bool{true, true, false}, find(t, f, again, one("rain", closed.Seq), one("rain", closed.Seq-1)))
}

// Nothing is held against an entry that was true at another time: Redis may go back in time.
func TestForgeriesAreJudgedByWhatIsTrueNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	f := lua.NewForgeries(b.rdb, b.space, 0)
	closed := b.closed(t, "rain", 10, 3)
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 20).Err())
	require.Equal(t, []bool{true}, find(t, f, one("rain", closed.Seq+1)))
	require.NoError(t, b.rdb.HDel(ctx, b.k.Campaign("rain"), "close_seq").Err()) // the close is lost, the campaign is open again
	require.Equal(t, []bool{false}, find(t, f, one("rain", closed.Seq+1)))
	require.NoError(t, b.rdb.HSet(ctx, b.k.Campaign("rain"), "close_seq", 21).Err())
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 30).Err())
	require.Equal(t, []bool{false, true}, find(t, f, one("rain", 20), one("rain", 22)))
}

// Keys that were written by hand, and campaigns that are not there, tell nothing: the sink has to judge.
func TestForgeriesWithoutACampaign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 9).Err())
	require.NoError(t, b.rdb.Set(ctx, b.k.Campaign("planted"), "x", 0).Err())
	require.NoError(t, b.rdb.HSet(ctx, b.k.Campaign("garbage"), "state", "closed", "close_seq", "1e9").Err())
	f := lua.NewForgeries(b.rdb, b.space, 0)
	require.Equal(t, []bool{false, false, false, true}, find(t, f, one("planted", 1), one("garbage", 2), one("nobody-knows", 3), one("planted", 10)))
}

// A campaign is where it belongs or nowhere.
func TestForgeriesOfAnotherShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	space, err := lua.NewSpace(b.prefix+"-2", 2)
	require.NoError(t, err)
	require.NoError(t, lua.Init(ctx, b.rdb, space, "test"))
	home := space.Home("rain")
	other := space.Shard(1 - home.Index())
	for _, k := range []lua.Keys{home, other} {
		require.NoError(t, b.rdb.HSet(ctx, k.Meta(), "seq", 9).Err())
	}
	f := lua.NewForgeries(b.rdb, space, other.Index())
	require.Equal(t, []bool{false}, find(t, f, one("rain", 1)), "nobody has it")
	require.NoError(t, b.rdb.HSet(ctx, home.Campaign("rain"), "state", "open").Err())
	f = lua.NewForgeries(b.rdb, space, other.Index())
	require.Equal(t, []bool{true, true}, find(t, f, one("rain", 1), one("rain", 2)))
	require.Equal(t, []bool{true}, find(t, f, one("rain", 1)))
	require.Equal(t, []bool{false}, find(t, lua.NewForgeries(b.rdb, space, home.Index()), one("rain", 1)))
}

// A Redis that is away is an outage, and what could not be asked is asked again.
func TestForgeriesOfARedisThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer away.Close()
	e := one("rain", 1)
	_, err := lua.NewForgeries(away, b.space, 0).Find(t.Context(), []*hongbao.Entry{&e}, true)
	require.True(t, hongbao.IsOutage(err), "%v", err)
}
