package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// loadInLargestChunks loads a campaign as with campaign.load_chunk 5000.
func (b *bundle) loadInLargestChunks(t *testing.T, c hongbao.Campaign) {
	t.Helper()
	plan, err := campaign.NewPlan(c, campaign.NewSeed())
	require.NoError(t, err)
	loader, err := load.New(b.store, load.Config{Chunk: store.MaxChunk})
	require.NoError(t, err)
	require.NoError(t, loader.Load(t.Context(), c, plan, strings.Repeat("0", 64), nil))
	require.EqualValues(t, 3, b.rdb.LLen(t.Context(), b.k.Keys.LoadedTotals(c.ID, 1)).Val())
}

// A campaign was loaded in the largest chunks. A restore takes packets from far behind the front, by one script or by
// two, and packets before them stay. Everybody can still count what is left, also after later grants.
func TestStockIsCountedAfterARestoreFarBehindTheFront(t *testing.T) {
	t.Parallel()
	for _, far := range []int64{4_990, store.MaxChunk, store.MaxChunk + 1, 7_000, 11_998} {
		for _, script := range []string{"regrant", "withhold"} {
			t.Run(fmt.Sprint(script, far), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				ctx := t.Context()
				s := &stocked{bundle: b, t: t, c: spec("rain", 12_000)}
				b.loadInLargestChunks(t, s.c)
				for i := range 5 {
					b.grab(t, "rain", fmt.Sprint("first", i))
				}
				s.adds("grabs")
				b.begin(t)
				front, err := b.k.Place("rain").Front(ctx, 1, far)
				require.NoError(t, err)
				last := front[0][len(front[0])-1]
				if script == "regrant" {
					for i, p := range []store.Packet{front[0][1], last} {
						g := hongbao.Grant{Campaign: "rain", User: fmt.Sprint("told", i), Seq: 6 + int64(i), Packet: p.Number, Amount: p.Amount,
							Time: time.UnixMilli(1_800_000_000_000)}
						require.NoError(t, b.k.RestoreGrants(ctx, attempt, run(g)))
						s.adds("regrant")
					}
				} else {
					stay := front[0][1 : len(front[0])-1]
					require.NoError(t, b.k.Withhold(ctx, attempt, "rain", store.Withholding{Last: 1, Front: []int{int(far)}, Stay: stay}))
					s.adds("withhold")
				}
				b.thaw(t)
				for i := range 50 {
					b.grab(t, "rain", fmt.Sprint("later", i))
				}
				s.adds("later grabs")
				e, err := b.k.Place("rain").Close(ctx, true, 0)
				require.NoError(t, err)
				f := b.rdb.HGetAll(ctx, b.k.Keys.Campaign("rain")).Val()
				require.Equal(t, f["granted"], fmt.Sprint(e.Close.Granted))
			})
		}
	}
}
