package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Chunks are loaded too early, repeatedly and for another plan. The stock has each packet of the first plan once.
func TestLoadChunks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	load := func(first int64, hash string, amounts ...hongbao.Amount) store.LoadState {
		t.Helper()
		at, err := b.k.LoadChunk(ctx,
			&store.Chunk{Campaign: "rain", Hash: hash, Before: first - 1, First: first, Amounts: amounts})
		require.NoError(t, err)
		return at
	}
	require.Equal(t, store.LoadState{}, load(1, "h", 2, 4), "before CreateCampaign")
	fields := []string{"packets", "4", "total", "10", "from", "1", "to", "2", "user_campaign", "1", "fact_names", ""}
	call := &store.CampaignCall{Campaign: "rain", Hash: "h", Fields: fields}
	at, err := b.k.CreateCampaign(ctx, call)
	require.NoError(t, err)
	require.Equal(t, store.LoadState{State: "loading", Hash: "h"}, at)
	require.EqualValues(t, 0, load(3, "h", 3, 1).Loaded, "a chunk too early")
	require.Equal(t, store.LoadState{State: "loading", Hash: "h"}, load(1, "other", 9, 9), "another plan")
	require.EqualValues(t, 2, load(1, "h", 2, 4).Loaded)
	require.EqualValues(t, 2, load(1, "h", 2, 4).Loaded, "a repeat")
	err = b.k.Place("rain").SetState(ctx, store.StateOpen, store.StateLoading)
	require.ErrorContains(t, err, "not have all its packets")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))

	call.Hash = "other"
	at, err = b.k.CreateCampaign(ctx, call)
	require.NoError(t, err)
	require.Equal(t, store.LoadState{State: "loading", Loaded: 2, Hash: "h"}, at, "the answer has the stored hash")
	require.EqualValues(t, 4, load(3, "h", 3, 1).Loaded)
	stock, err := b.rdb.LRange(ctx, b.k.Keys.Stock("rain"), 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, "1 2 2 4 3 3 4 1", strings.Join(stock, " "))
	f, err := b.k.Place("rain").CampaignFields(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 10, 0, 0},
		[]int64{f.Loaded, int64(f.LoadedAmount), f.Granted, int64(f.GrantedAmount)})
	sums, err := b.rdb.LRange(ctx, b.k.Keys.LoadedTotals("rain", 1), 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []string{"2 6", "4 10"}, sums, "packets and amount of the place after each chunk")
}

func TestLoadNoticesForeignStock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, b.rdb.RPush(ctx, b.k.Keys.Stock("rain"), "1:1").Err())
	before := b.dump(t)
	require.ErrorContains(t, begin(ctx, b), "HBLEFTOVER")
	require.Empty(t, differ(before, b.dump(t)))
	require.NoError(t, b.rdb.Del(ctx, b.k.Keys.Stock("rain")).Err())
	require.NoError(t, begin(ctx, b))
	require.NoError(t, b.rdb.RPush(ctx, b.k.Keys.Stock("rain"), "1:1").Err())
	before = b.dump(t)
	err := chunk(ctx, b)
	require.ErrorContains(t, err, "HBSTOCK")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Empty(t, differ(before, b.dump(t)))
}

func TestStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	set := func(to, from string) error { return b.k.Place("rain").SetState(ctx, to, from) }
	require.ErrorContains(t, set(store.StatePaused, store.StateOpen), "not in Redis")
	require.NoError(t, begin(ctx, b))
	require.ErrorContains(t, set(store.StatePaused, store.StateOpen), "is loading")
	require.NoError(t, chunk(ctx, b))
	for range 2 { // a repeat is no error
		require.NoError(t, set(store.StateOpen, store.StateLoading))
	}
	require.NoError(t, set(store.StatePaused, store.StateOpen))
	require.NoError(t, set(store.StatePaused, store.StateOpen))
	require.ErrorContains(t, set(store.StateOpen, store.StateLoading), "is paused")
	require.NoError(t, set(store.StateOpen, store.StatePaused))
}

// On a shard that was never initialized, grabs are answered with frozen, and loads and trims fail. Nothing is
// written.
func TestShardThatWasNeverInitialized(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, b.rdb.Del(ctx, b.k.Keys.Meta(), b.store.Deployment()).Err())
	answers, err := b.k.Place("rain").Grab(ctx, call("rain", "u1"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeFrozen, answers[0].Outcome)
	_, trimErr := b.k.TrimEvents(ctx, store.Trim{Limit: 1, MaxEvents: 1})
	for name, err := range map[string]error{"trim": trimErr, "begin": begin(ctx, b)} {
		require.ErrorIs(t, err, store.ErrFrozen, name)
		require.True(t, hongbao.IsOutage(err), name)
	}
	require.Empty(t, b.dump(t))
}

// A malformed reply of grab.lua is an error of class Unknown that names the script. It yields no answers.
func TestParseGrabReply(t *testing.T) {
	t.Parallel()
	c := call("rain", "u1", "u2")
	for name, reply := range map[string]string{
		"empty": "", "short": "1\t1\t1\ts\ts", "long": "1\t1\t1\t1\t1\ts\ts", "no time": "x\t1\t1\t1\ts\ts",
		"no seq": "1\t1\t\t1\ts\ts", "no epoch": "1\t1\t1\t\ts\ts", "an answer too few": "1\t1\t1\t1\ts",
		"one too many": "1\t1\t1\t1\ts\ts\ts", "no answers": "1\t1\t1\t1",
		"no outcome": "1\t1\t1\t1\ts\t", "unknown outcome": "1\t1\t1\t1\ts\tz",
		"bad packet":            "1\t1\t1\t1\ts\t1 x",
		"packet without amount": "1\t1\t1\t1\ts\t12", "bad receipt": "1\t1\t1\t1\ts\t=1 2 x 4 r",
		"short receipt": "1\t1\t1\t1\ts\ta1 2 3 4", "bad limit": "1\t1\t1\t1\ts\tluser",
		"no such limit": "1\t1\t1\t1\ts\tl1", "limit 0": "1\t1\t1\t1\ts\tl0", "granted nothing": "1\t1\t1\t1\ts\ta",
		"six fields": "1\t1\t1\t1\ts\t=1 2 3 4 r 5", "no receipt": "1\t1\t1\t1\ts\t=",
		"empty line":                       "1\t1\t1\t1\ts\ta1 2 3 4 r\n\n1 2 3 4 q",
		"no window's start, nor any terms": "1\t\t1\t1\ts\ts",
	} {
		answers, _, err := store.ParseGrabReply(0, c, reply, nil)
		require.ErrorContains(t, err, "grab", name)
		require.Nil(t, answers, name)
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), name)
	}
}

// A shard has lost its meta key but not its stream. Initialize refuses to create it again. Otherwise seqs would restart
// at 1, and the old done bits would make every sink skip the new events.
func TestFoundRefusesAShardThatLostItsMeta(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	b.grab(t, "rain", "u1")
	require.NoError(t, b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Meta()).Err())
	before := b.dump(t)
	err := b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"})
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, b.k.Keys.Meta())
	require.Empty(t, differ(before, b.dump(t)))
}

// A campaign's hash lacks its state, because somebody changed it by hand. The campaign is not treated as absent.
func TestCampaignWithoutState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 3))
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Campaign("rain"), "state").Err())
	found, err := b.k.Place("rain").HasCampaign(t.Context())
	require.NoError(t, err)
	require.True(t, found)
	_, found, err = b.store.Campaign("rain").Status(t.Context())
	require.NoError(t, err)
	require.True(t, found)
	terms, err := b.k.Place("rain").GrabTerms(t.Context())
	require.NoError(t, err)
	require.NotNil(t, terms)
}
