package test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/settlement"
	sqlitedb "github.com/hongbao-project/hongbao/settlement/sqlite"
)

// The public package settlement pays the packets of a top-up, because its plans come from the ledger.
func TestSettlementPaysATopUp(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "ledger.db")
	config := settlement.Config{Database: sqlitedb.New(path)}
	_, err := settlement.Migrate(ctx, config)
	require.NoError(t, err)
	public, err := settlement.Open(ctx, config)
	require.NoError(t, err)
	defer public.Close()
	tables := ledger.DefaultConfig()
	tables.Database = config.Database
	books, err := ledger.Open(ctx, tables)
	require.NoError(t, err)
	defer books.Close()

	even := hongbao.Split{Mode: hongbao.SplitEven}
	spec := hongbao.Campaign{ID: "rain", Name: "rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000,
		Packets: 10, Split: even, Sponsor: "acme", TimeZone: "UTC", From: time.Unix(1_700_000_000, 0).UTC(),
		To: time.Unix(1_700_003_600, 0).UTC(), Durability: hongbao.DurabilityFast,
		Limits: []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 100}}}
	seed := campaign.Seed{1}
	require.NoError(t, public.CreateCampaign(ctx, settlement.Campaign{
		Spec: spec, Canonical: campaign.Canonical(spec), Hash: campaign.Commit(spec, seed), Seed: seed}))
	plans, err := campaign.NewPlans(campaign.PlansConfig{Source: public.Plan, MaxPackets: 20_000_000})
	require.NoError(t, err)
	handler, err := settlement.New(settlement.HandlerConfig{Ledger: public, Plan: plans, Log: zap.NewNop(),
		OnQuarantine: func(q settlement.Quarantined) error {
			t.Errorf("packet %d went to quarantine: %s", q.Grant.Packet, q.Reason)
			return nil
		}})
	require.NoError(t, err)
	pays := func(packet int64) {
		t.Helper()
		for _, err := range handler.Handle(ctx, testkit.Batch([]hongbao.Grant{{Seq: packet, Epoch: 1, Campaign: "rain", Packet: packet,
			Amount: 100, User: "ann", Time: time.Unix(1_700_000_001, 0)}})) {
			require.NoError(t, err)
		}
	}
	pays(1)
	_, err = books.TopUp(ctx, ledger.TopUp{Campaign: "rain", ID: "order", Expect: 1000, Generation: 2, Packets: 5,
		Total: 500, Split: even, Seed: campaign.Seed{2}, Hash: "its hash",
		Decision: stream.Decision{By: "ann", Why: "it rains so well"}})
	require.NoError(t, err)
	for packet := int64(11); packet <= 15; packet++ {
		pays(packet)
	}
	balance, err := public.Balance(ctx, "ann", "CNY")
	require.NoError(t, err)
	require.Equal(t, hongbao.Amount(600), balance)
}
