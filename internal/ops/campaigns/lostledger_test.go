package campaigns

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The ledger has lost a campaign and its top-up, and the campaign's window has ended. What equals what Redis has can be
// created and ordered again; anything else is refused.
func TestWhatRedisHasIsRepeatedAfterTheWindow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for _, mode := range []hongbao.SplitMode{hongbao.SplitEven, hongbao.SplitRandom} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
			require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
			over := time.Now().Add(-time.Hour).Truncate(time.Second)
			spec := hongbao.Campaign{ID: "rain", Name: "rain", Kind: hongbao.KindRedPacket, Sponsor: "acme",
				Currency: "CNY", Packets: 10, Total: 1_000, Split: hongbao.Split{Mode: mode}, From: over.Add(-time.Hour), To: over, TimeZone: "UTC"}
			if mode == hongbao.SplitRandom {
				spec.Split.Min, spec.Split.Max = 1, 500
			}
			spec = campaign.Complete(spec)
			seed := campaign.NewSeed()
			_, err := a.Ledger().CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: seed,
				Hash: campaign.Commit(spec, seed), Canonical: campaign.Canonical(spec)})
			require.NoError(t, err)
			_, err = Of(a).Load(t.Context(), "rain")
			require.NoError(t, err)
			order := ledger.TopUp{Campaign: "rain", ID: "more", Packets: 5, Total: 500, Expect: 1_000,
				Decision: stream.Decision{By: "ann", Why: "it rains"}}
			draw := ledger.TopUp{Campaign: "rain", ID: "more", Packets: 5, Total: 500, Expect: 1_000, Generation: 2,
				Split: spec.Split, Seed: campaign.NewSeed(), Decision: order.Decision}
			committed := draw.Draw(campaign.Commit(spec, seed))
			draw.Hash = committed.Commit()
			_, err = a.Ledger().TopUp(t.Context(), draw)
			require.NoError(t, err)
			require.NoError(t, Of(a).DealTopUps(t.Context(), "rain"))

			older := a.LedgerConfig()
			older.Database = sqlite.Database{Path: filepath.Join(t.TempDir(), "older.db")}
			_, err = ledger.Migrate(t.Context(), older)
			require.NoError(t, err)
			books, err := ledger.Open(t.Context(), older)
			require.NoError(t, err)
			a.SetLedger(books)
			t.Cleanup(func() { require.NoError(t, a.Ledger().Close()) })
			_, err = a.Ledger().Initialize(t.Context(), a.Config.DeploymentRow())
			require.NoError(t, err)

			other := spec
			other.Total, other.Packets = 1_100, 11
			_, err = Of(a).Create(t.Context(), other, nil)
			require.ErrorIs(t, err, ledger.ErrCampaignExists, "Redis has another specification")
			created, err := Of(a).Create(t.Context(), spec, nil)
			if mode == hongbao.SplitRandom {
				require.ErrorIs(t, err, ledger.ErrCampaignExists, "another draw has other amounts")
				return
			}
			require.NoError(t, err)
			require.True(t, created.Created)
			order.Packets, order.Total = 6, 600
			_, err = Of(a).TopUp(t.Context(), order)
			require.ErrorIs(t, err, ledger.ErrNoTopUp, "Redis has another top-up")
			order.Packets, order.Total = 5, 500
			ordered, err := Of(a).TopUp(t.Context(), order)
			require.NoError(t, err)
			require.EqualValues(t, 11, ordered.First)
			order.ID, order.Expect = "new", 1_500
			_, err = Of(a).TopUp(t.Context(), order)
			require.ErrorIs(t, err, ledger.ErrNoTopUp, "the window is over")
		})
	}
}
