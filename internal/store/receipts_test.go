package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// One call reads the receipts of several users. If the shard is frozen, or the campaign is missing or frozen, every
// answer is frozen and has no receipts.
func TestReceipts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 5)
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}}
	b.load(t, c)
	first := b.grab(t, "rain", "u1/r1", "u2/r2")
	second := b.grab(t, "rain", "u1/r3")
	k := b.k
	grabs := call("rain", "u1/r1", "u3/r4", "u2/r2").Grabs
	answers, err := k.Place("rain").Receipts(t.Context(), grabs, nil)
	require.NoError(t, err)
	require.Equal(t, []hongbao.Receipt{first[0].Receipts[0], second[0].Receipts[0]}, answers[0].Receipts)
	require.Empty(t, answers[1].Receipts)
	at := answers[1].Time
	require.Equal(t, at.Truncate(time.Millisecond), at, "the time of Redis is in whole ms")
	require.Equal(t, first[1].Receipts, answers[2].Receipts)
	require.Empty(t, answers[2].Outcome)

	frozen := func(id string) {
		t.Helper()
		answers, err := k.Place(id).Receipts(t.Context(), grabs, answers)
		require.NoError(t, err)
		require.Len(t, answers, len(grabs))
		for _, a := range answers {
			require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
			require.Empty(t, a.Receipts)
		}
	}
	frozen("snow")
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "frozen").Err())
	frozen("rain")
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "open").Err())
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "frozen", "1").Err())
	frozen("rain")
}
