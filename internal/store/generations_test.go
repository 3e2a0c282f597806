package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// announcement returns the announcement of rain's second generation. share and amount are the number and sum of all
// packets of the place afterwards.
func announcement(b *bundle, share int64, amount hongbao.Amount) *store.Announcement {
	hash := b.rdb.HGet(context.Background(), b.k.Keys.Campaign("rain"), "hash").Val()
	return &store.Announcement{Campaign: "rain", Hash: hash, Generation: 2, Plan: "p2", Packets: share, Total: amount,
		Share: share, ShareAmount: amount}
}

// A top-up on one place is announced, then dealt. Its packets are granted after those of the first generation.
func TestTopUpOfAPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	b.load(t, spec("rain", 1))
	c := call("rain", "u1/r1")
	ask := func(generation int64, users ...string) hongbao.Answer {
		t.Helper()
		more := call("rain", users...)
		more.Terms, more.Generation = c.Terms, generation
		answers, err := k.Place("rain").Grab(ctx, more, nil)
		require.NoError(t, err)
		c.Terms = more.Terms
		return answers[0]
	}
	first := ask(1, "u1/r1")
	require.Equal(t, hongbao.OutcomeSoldOut, ask(1, "u2").Outcome)
	require.EqualValues(t, 1, c.Terms.Generation())
	revision := c.Terms.Revision()

	a := announcement(b, 3, 30)
	require.NoError(t, k.Announce(ctx, a))
	require.Equal(t, hongbao.OutcomeSoldOut, ask(1, "u2").Outcome, "the generation of the call")
	require.EqualValues(t, 2, c.Terms.Generation(), "the reply announces the next generation")
	require.NotEqual(t, revision, c.Terms.Revision())
	require.Equal(t, hongbao.OutcomeRefilling, ask(2, "u2").Outcome)
	_, err := k.Place("rain").Close(ctx, true, a.Packets)
	require.ErrorIs(t, err, store.ErrRefilling)
	require.ErrorContains(t, err, "not dealt on every shard yet")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))

	deal := func(before int64, amounts ...hongbao.Amount) store.LoadState {
		t.Helper()
		at, err := k.LoadChunk(ctx, &store.Chunk{Campaign: "rain", Hash: a.Hash, Generation: 2, Before: before,
			First: before + 1, Amounts: amounts})
		require.NoError(t, err)
		return at
	}
	require.EqualValues(t, 1, deal(1, 7).Dealt)
	require.Equal(t, hongbao.OutcomeRefilling, ask(2, "u2").Outcome, "a part of it")
	require.EqualValues(t, 2, deal(1, 7).Loaded, "a repeat")
	require.EqualValues(t, 2, deal(2, 13).Dealt)
	require.EqualValues(t, 7, ask(2, "u2/r2").Receipts[0].Amount)
	require.Equal(t, first.Receipts, ask(2, "u1/r1").Receipts, "a repeat finds its receipt")
	require.NoError(t, k.Announce(ctx, a), "a repeat")

	_, err = k.Place("rain").Close(ctx, true, a.Packets+1)
	require.ErrorIs(t, err, store.ErrRefilling, "the caller expects more packets than were announced")
	e, err := k.Place("rain").Close(ctx, true, a.Packets)
	require.NoError(t, err)
	require.Equal(t, stream.Closing{Granted: 2, GrantedAmount: 17, Left: 1, LeftAmount: 13}, e.Close)
	_, err = k.Place("rain").Refunded(ctx)
	require.NoError(t, err)
	_, err = k.Place("rain").PurgeCampaign(ctx, 0)
	require.NoError(t, err)
	keys, err := b.rdb.Keys(ctx, b.k.Keys.Campaign("rain")+"*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// A place grants its packets while top-ups are announced and dealt. The window reports sold out only if every
// announced generation is dealt and granted.
func TestWindowIsNotSoldOutWhilePacketsCome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	b.load(t, spec("rain", 1))
	shows := func(want bool, when string) {
		t.Helper()
		w, err := k.Place("rain").Window(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, w.SoldOut, when)
	}
	deal := func(a *store.Announcement, before int64, amounts ...hongbao.Amount) {
		t.Helper()
		_, err := k.LoadChunk(t.Context(), &store.Chunk{Campaign: "rain", Hash: a.Hash, Generation: a.Generation,
			Before: before, First: before + 1, Amounts: amounts})
		require.NoError(t, err)
	}
	shows(false, "no one grabbed")
	b.grab(t, "rain", "u1")
	shows(true, "the first generation is granted")
	a := announcement(b, 2, 17)
	require.NoError(t, k.Announce(t.Context(), a))
	shows(false, "a grab says refilling")
	deal(a, 1, 7)
	shows(false, "the second generation is dealt")
	a = announcement(b, 3, 20)
	a.Generation, a.Plan = 3, "p3"
	require.NoError(t, k.Announce(t.Context(), a))
	shows(false, "the second generation has a packet, the third is announced")
	deal(a, 2, 3)
	for g := int64(2); g <= 3; g++ {
		c := call("rain", fmt.Sprint("u", g))
		c.Generation = g
		answers, err := k.Place("rain").Grab(t.Context(), c, nil)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
		shows(g == 3, fmt.Sprintf("generation %d is granted", g))
	}
}

// A generation has no packets for a place. Grabs are answered refilling until an empty chunk is loaded, then
// sold_out.
func TestEmptyGenerationOfAPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	b.load(t, spec("rain", 1))
	a := announcement(b, 1, 10)
	require.NoError(t, k.Announce(t.Context(), a))
	c := call("rain", "u1")
	c.Generation = 2
	answers, err := k.Place("rain").Grab(t.Context(), c, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeRefilling, answers[0].Outcome)
	for range 2 {
		at, err := k.LoadChunk(t.Context(), &store.Chunk{Campaign: "rain", Hash: a.Hash, Generation: 2, Before: 1, First: 2})
		require.NoError(t, err)
		require.Equal(t, store.LoadState{State: store.StateOpen, Hash: a.Hash, Loaded: 1, Dealt: 2}, at)
	}
	answers, err = k.Place("rain").Grab(t.Context(), c, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeSoldOut, answers[0].Outcome)
}

func TestAnnounceRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	state := func(s string) func(*bundle, *store.Announcement) {
		return func(b *bundle, _ *store.Announcement) {
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", s).Err())
		}
	}
	for name, c := range map[string]struct {
		prep  func(b *bundle, a *store.Announcement)
		says  string
		class hongbao.Class
	}{
		"unknown": {func(_ *bundle, a *store.Announcement) { a.Campaign = "snow" }, "not in Redis",
			hongbao.ClassPermanent},
		"loading":  {state("loading"), "it is loading", hongbao.ClassPermanent},
		"closed":   {state("closed"), "it is closed", hongbao.ClassPermanent},
		"refunded": {state("refunded"), "it is refunded", hongbao.ClassPermanent},
		"frozen":   {state("frozen"), store.ErrLost.Error(), hongbao.ClassPermanent},
		"the first one": {func(_ *bundle, a *store.Announcement) { a.Generation = 1 }, "want 2 to 64",
			hongbao.ClassPermanent},
		"not the next": {func(_ *bundle, a *store.Announcement) { a.Generation = 3 }, "generation 1 is the newest",
			hongbao.ClassPermanent},
		"another plan": {func(_ *bundle, a *store.Announcement) { a.Hash = "other" }, "another plan",
			hongbao.ClassConflict},
		"less than it has": {func(_ *bundle, a *store.Announcement) { a.Share = 4 }, "HBSTOCK", hongbao.ClassBroken},
		"another plan of the generation": {func(b *bundle, a *store.Announcement) {
			require.NoError(t, b.k.Announce(t.Context(), a))
			a.Plan = "other"
		}, "another plan", hongbao.ClassConflict},
		"before the last one is dealt": {func(b *bundle, a *store.Announcement) {
			require.NoError(t, b.k.Announce(t.Context(), a))
			a.Generation = 3
		}, "after that is dealt", hongbao.ClassPermanent},
		"a stock before the announcement": {func(b *bundle, _ *store.Announcement) {
			require.NoError(t, b.rdb.RPush(t.Context(), b.k.Keys.StockOf("rain", 2), "9 9").Err())
		}, "HBLEFTOVER", hongbao.ClassBroken},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupOn(t, b.rdb)
			b.load(t, spec("rain", 5))
			a := announcement(b, 7, 70)
			c.prep(b, a)
			before := b.dump(t)
			err := b.k.Announce(t.Context(), a)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.class, hongbao.ClassOf(err))
			require.Empty(t, differ(before, b.dump(t)))
		})
	}
}

// A generation is loaded with a sum other than the announced one. The load fails.
func TestLoadRefusesAnotherSum(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1))
	a := announcement(b, 2, 20)
	require.NoError(t, b.k.Announce(t.Context(), a))
	before := b.dump(t)
	for _, amounts := range [][]hongbao.Amount{{11}, {5, 5}} {
		_, err := b.k.LoadChunk(t.Context(), &store.Chunk{Campaign: "rain", Hash: a.Hash, Generation: 2,
			Before: 1, First: 2, Amounts: amounts})
		require.ErrorContains(t, err, "HBSTOCK")
		require.Empty(t, differ(before, b.dump(t)))
	}
}

// One place of a campaign on two places has one packet. When the packet is granted, the place answers sold_out with
// the receipts that the user has there. A user's packets on the other place count against the limit.
func TestOnePlaceOfSeveral(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	fields := []string{"from", "1", "to", "9999999999998", "user_campaign", "2", "user_day", "", "user_hour", "",
		"fact_names", "", "fact_limits", "", "zone", "0:0", "packets", "3", "total", "9"}
	create := &store.CampaignCall{Campaign: "rain", Hash: "h", Fields: fields, Places: 2, Place: 1, Share: 1,
		ShareAmount: 4}
	_, err := k.CreateCampaign(t.Context(), create)
	require.NoError(t, err)
	require.ErrorContains(t, k.Place("rain").SetState(t.Context(), store.StateOpen, store.StateLoading), "not have all its packets")
	at, err := k.LoadChunk(t.Context(), &store.Chunk{Campaign: "rain", Hash: "h", First: 2, Step: 2,
		Amounts: []hongbao.Amount{4}})
	require.NoError(t, err)
	require.EqualValues(t, 1, at.Loaded)
	require.NoError(t, k.Place("rain").SetState(t.Context(), store.StateOpen, store.StateLoading))
	granted := b.grab(t, "rain", "u1/r1")[0]
	require.EqualValues(t, 2, granted.Receipts[0].Packet)

	c := call("rain", "u1/r2", "u2/r3", "u3/r4", "u1/r1")
	now := time.Now()
	c.TimesElsewhere = [][]time.Time{nil, {now}, {now, now}, nil}
	answers, err := k.Place("rain").Grab(t.Context(), c, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeSoldOut, answers[0].Outcome)
	require.Equal(t, granted.Receipts, answers[0].Receipts)
	require.Equal(t, hongbao.OutcomeSoldOut, answers[1].Outcome)
	require.Empty(t, answers[1].Receipts)
	require.Equal(t, hongbao.OutcomeLimitReached, answers[2].Outcome, "the user's packets elsewhere count")
	require.Equal(t, granted.Receipts, answers[3].Receipts)
	require.Equal(t, 2, c.Terms.Places())

	c.TimesElsewhere = c.TimesElsewhere[:1]
	_, err = k.Place("rain").Grab(t.Context(), c, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	c.TimesElsewhere, c.Generation = nil, store.MaxGenerations+1
	_, err = k.Place("rain").Grab(t.Context(), c, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}
