package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// Codes are stored in chunks of any length. A repeated chunk changes nothing, and a chunk of a different plan is not
// stored.
func TestPutCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	codes := make([]string, 2345)
	for i := range codes {
		codes[i] = fmt.Sprint("C", i+1)
	}
	put := func(first int64, hash string, codes ...string) store.LoadState {
		t.Helper()
		at, err := b.k.PutCodes(ctx,
			&store.CodesChunk{Campaign: "rain", Hash: hash, First: first, Codes: codes})
		require.NoError(t, err)
		return at
	}
	require.Equal(t, store.LoadState{}, put(1, "h", "C1"), "before CreateCampaign")
	require.NoError(t, begin(ctx, b))
	require.Equal(t, store.LoadState{State: "loading", Hash: "h"}, put(1, "other", "X"), "another plan")
	require.Equal(t, store.LoadState{State: "loading", Hash: "h"}, put(1, "h"), "it only asks")
	require.Equal(t, store.LoadState{State: "loading", Hash: "h", Loaded: 2001}, put(1, "h", codes[:2001]...))
	require.Equal(t, store.LoadState{State: "loading", Hash: "h", Loaded: 2345}, put(1001, "h", codes[1000:]...))
	got, err := b.k.Place("rain").Codes(ctx, []int64{2345, 9999, 1, 1001})
	require.NoError(t, err)
	require.Equal(t, []string{"C2345", "", "C1", "C1001"}, got)
	got, err = b.k.Place("rain").Codes(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestLeftoverCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Codes("rain"), "1", "A1").Err())
	require.ErrorContains(t, begin(t.Context(), b), "HBLEFTOVER")
}

func TestTerms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.k.Place("rain").Terms(t.Context())
	require.ErrorIs(t, err, store.ErrNotInRedis)
	b.load(t, spec("rain", 5))
	currency, codes, err := b.k.Place("rain").Terms(t.Context())
	require.NoError(t, err)
	require.Equal(t, "CNY", currency)
	require.False(t, codes)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), store.CodesField, "1").Err())
	_, codes, err = b.k.Place("rain").Terms(t.Context())
	require.NoError(t, err)
	require.True(t, codes)
}

// Redis has lost the campaign, and only a stub is left. It does not know the currency, so Terms does not make one up.
func TestTermsOfAStub(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.k.EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 15}))
	_, _, err := b.k.Place("rain").Terms(t.Context())
	require.ErrorIs(t, err, store.ErrNotInRedis)
}

func TestFillCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, begin(t.Context(), b))
	require.NoError(t, putCodes(t.Context(), b))
	one, two := []hongbao.Receipt{{Packet: 2}}, []hongbao.Receipt{{Packet: 1}, {Packet: 2}}
	missing, err := b.k.Place("rain").FillCodes(t.Context(), one, two)
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil}, missing)
	require.Equal(t, []hongbao.Receipt{{Packet: 2, Code: "B2"}}, one)
	require.Equal(t, []hongbao.Receipt{{Packet: 1, Code: "A1"}, {Packet: 2, Code: "B2"}}, two)
	one = []hongbao.Receipt{{Packet: 2}}
	missing, err = b.k.Place("rain").FillCodes(t.Context(), []hongbao.Receipt{{Packet: 1}, {Packet: 3}}, one)
	require.NoError(t, err)
	require.NoError(t, missing[1], "the second list has all its codes")
	require.Equal(t, "B2", one[0].Code)
	err = missing[0]
	require.ErrorIs(t, err, store.ErrNoCode)
	require.ErrorContains(t, err, "packet 3 of campaign rain")
	require.ErrorContains(t, err, "hongbao campaign load rain")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// A load with codes is interrupted after each chunk and repeated. The campaign opens when every packet has its code.
// A later load restores codes that Redis lost.
func TestLoadWithCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, stop := t.Context(), errors.New("killed")
	c := spec("rain", 50)
	c.Kind, c.Codes = hongbao.KindCoupon, &hongbao.Codes{File: "codes.txt"}
	c.Split = hongbao.Split{Mode: hongbao.SplitEven}
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	require.NoError(t, err)
	stopAt, stored := int64(0), int64(50)
	cfg := load.Config{Chunk: 7}
	load := func() error {
		loader, err := load.New(b.store, cfg)
		require.NoError(t, err)
		return loader.Load(ctx, c, plan, campaign.Commit(c, seed), nil)
	}
	require.ErrorContains(t, load(), "Config.Codes is not set")
	cfg.Codes = func(_ context.Context, id string, after int64, n int) (codes []string, err error) {
		require.Equal(t, "rain", id)
		if after == stopAt {
			return nil, stop
		}
		for p := after + 1; p <= min(after+int64(n), stored); p++ {
			codes = append(codes, fmt.Sprint("C", p))
		}
		return codes, nil
	}
	state := func() string {
		return b.rdb.HGet(ctx, b.k.Keys.Campaign("rain"), "state").Val()
	}
	for ; stopAt < 50; stopAt += 7 {
		require.ErrorIs(t, load(), stop)
		require.Equal(t, stopAt, b.rdb.HLen(ctx, b.k.Keys.Codes("rain")).Val())
		require.Equal(t, store.StateLoading, state())
	}
	stored = 49
	err = load()
	require.ErrorContains(t, err, "packet 50 has no code in the ledger")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.Zero(t, b.rdb.LLen(ctx, b.k.Keys.Stock("rain")).Val(), "codes come first")
	stored = 50
	require.NoError(t, load())
	require.Equal(t, store.StateOpen, state())
	whole := b.rdb.HGetAll(ctx, b.k.Keys.Codes("rain")).Val()
	require.Len(t, whole, 50)
	require.Equal(t, "C31", whole["31"])

	before := b.dump(t)
	cfg.Codes = func(context.Context, string, int64, int) ([]string, error) { return nil, stop }
	require.NoError(t, load(), "no code is missing, so Config.Codes is not called")
	require.Empty(t, differ(before, b.dump(t)))
	require.NoError(t, b.rdb.HDel(ctx, b.k.Keys.Codes("rain"), "1", "31").Err())
	stopAt = -1
	cfg.Codes = func(_ context.Context, _ string, after int64, _ int) ([]string, error) {
		return []string{fmt.Sprint("C", after+1)}, nil
	}
	require.NoError(t, load())
	require.Equal(t, whole, b.rdb.HGetAll(ctx, b.k.Keys.Codes("rain")).Val())
	require.NoError(t, b.rdb.HSet(ctx, b.k.Keys.Codes("rain"), "51", "X").Err())
	require.ErrorContains(t, load(), "something else writes there")

	c.Packets, c.Total = 51, 510
	plan, err = campaign.NewPlan(c, seed)
	require.NoError(t, err)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(load()), "another plan")
}

// A refunded campaign with codes is purged. Its codes are removed too.
func TestRetireTakesCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.closed(t, "rain", 5, 2)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Codes("rain"), "1", "A1").Err())
	_, err := b.k.Place("rain").Refunded(t.Context())
	require.NoError(t, err)
	left, err := b.k.Place("rain").PurgeCampaign(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, left)
	require.Zero(t, b.rdb.Exists(t.Context(), b.k.Keys.Codes("rain"), b.k.Keys.Campaign("rain")).Val())
}
