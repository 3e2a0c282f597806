package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// A campaign with chunks of 5, 5 and 2 packets grants 0 to 12 of them. CampaignFields and the close return the exact
// number and sum of the granted packets.
func TestCountsOfWhatWasGranted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for granted := range 13 {
		b := setupOn(t, b.rdb)
		k := b.k
		c := spec("rain", 12)
		seed := campaign.NewSeed()
		plan, err := campaign.NewPlan(c, seed)
		require.NoError(t, err)
		s, err := load.New(b.store, load.Config{Chunk: 5})
		require.NoError(t, err)
		require.NoError(t, s.Load(t.Context(), c, plan, campaign.Commit(c, seed), nil))
		var sum hongbao.Amount
		for i := range granted {
			sum += b.grab(t, "rain", fmt.Sprint("u", i))[0].Receipts[0].Amount
		}
		f, err := k.Place("rain").CampaignFields(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{int64(granted), int64(sum)}, []int64{f.Granted, int64(f.GrantedAmount)})
		e, err := k.Place("rain").Close(t.Context(), true, 0)
		require.NoError(t, err)
		require.EqualValues(t, granted, e.Close.Granted)
		require.Equal(t, sum, e.Close.GrantedAmount)
		f, err = k.Place("rain").CampaignFields(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{int64(granted), int64(sum)}, []int64{f.Granted, int64(f.GrantedAmount)})
	}
}

// Sums, stock or receipts contradict each other. CampaignFields and Close return an error.
func TestSumsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, plant := range map[string]func(b *bundle) error{
		"gone":           func(b *bundle) error { return b.rdb.Del(t.Context(), b.k.Keys.LoadedTotals("rain", 1)).Err() },
		"no numbers":     func(b *bundle) error { return b.rdb.RPush(t.Context(), b.k.Keys.LoadedTotals("rain", 1), "x").Err() },
		"a longer stock": func(b *bundle) error { return b.rdb.RPush(t.Context(), b.k.Keys.Stock("rain"), "6 1", "7 1").Err() },
		"a packet taken": func(b *bundle) error { return b.rdb.RPop(t.Context(), b.k.Keys.Stock("rain")).Err() },
		"a receipt made": func(b *bundle) error {
			return b.rdb.HSet(t.Context(), b.k.Keys.Receipts("rain"), "u1", "5 1 1 1 r").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupOn(t, b.rdb)
			b.load(t, spec("rain", 5))
			require.NoError(t, plant(b))
			before := b.dump(t)
			_, err := b.k.Place("rain").CampaignFields(t.Context())
			require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
			_, err = b.k.Place("rain").Close(t.Context(), true, 0)
			require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
			require.Empty(t, differ(before, b.dump(t)))
		})
	}
}
