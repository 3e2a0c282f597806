package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A user won another packet by a retry after a loss. A person grants them the withheld packet, too, above the
// campaign's limit. The close, and whoever reads the campaign, counts it. So does a close after another loss and its
// restore.
func TestGrantAboveTheLimit(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"granted": false, "granted, lost and restored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ctx := t.Context()
			withheldThree(t, b)
			retry := b.grab(t, "rain", "told/r1")[0].Receipts
			back := b.keep(t)
			g := hongbao.Grant{Campaign: "rain", User: "told", Packet: firstWithheld.Number, Amount: firstWithheld.Amount}
			why, err := b.k.GrantWithheld(ctx, &g, store.Room{})
			require.NoError(t, err)
			require.Equal(t, store.RefusedLimit, why)
			for _, want := range []store.Refusal{"", store.RefusedHas} {
				why, err = b.k.GrantWithheld(ctx, &g, store.Room{AboveLimit: true})
				require.NoError(t, err)
				require.Equal(t, want, why)
			}
			if lost {
				back()
				b.begin(t)
				for range 2 { // a repeat counts nothing twice
					require.NoError(t, b.k.RestoreGrants(ctx, attempt, run(g)))
				}
				b.thaw(t)
			}
			require.Equal(t, "1", b.rdb.HGet(ctx, b.k.Keys.Campaign("rain"), "above_limit").Val())
			has := b.grab(t, "rain", "told/r1")[0].Receipts
			require.Equal(t, retry, has[:1], "a repeat of the retry")
			fields, err := b.k.Place("rain").CampaignFields(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 2, fields.Granted)
			e, err := b.k.Place("rain").Close(ctx, true, 0)
			require.NoError(t, err)
			require.EqualValues(t, 2, e.Close.Granted)
		})
	}
}

// A receipt that somebody wrote by hand still ends a close, after a grant above the limit.
func TestCloseCountsOnlyGrantsAboveTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	withheldThree(t, b)
	b.grab(t, "rain", "told/r1")
	g := hongbao.Grant{Campaign: "rain", User: "told", Packet: firstWithheld.Number, Amount: firstWithheld.Amount}
	_, err := b.k.GrantWithheld(ctx, &g, store.Room{AboveLimit: true})
	require.NoError(t, err)
	require.NoError(t, b.rdb.LPop(ctx, b.k.Keys.Stock("rain")).Err())
	_, err = b.k.Place("rain").Close(ctx, true, 0)
	require.ErrorContains(t, err, "1 users have receipts, at most 1 each and 1 above that limit")
	_, err = b.k.Place("rain").CampaignFields(ctx)
	require.ErrorContains(t, err, "at most 1 each and 1 above that limit")
}
