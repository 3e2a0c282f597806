// Package loaded loads campaigns for tests and benchmarks.
package loaded

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// Load draws the plan of a campaign and loads the campaign.
func Load(ctx context.Context, st *store.Store, c hongbao.Campaign, codes []string) error {
	_, err := Seeded(ctx, st, c, campaign.NewSeed(), codes...)
	return err
}

// Seeded loads a campaign with the plan that a seed determines. If there are codes, there must be one for each
// packet.
func Seeded(ctx context.Context, st *store.Store, c hongbao.Campaign, seed campaign.Seed,
	codes ...string) (*campaign.Plan, error) {
	plan, err := campaign.NewPlan(c, seed)
	if err != nil {
		return nil, err
	}
	loader, err := load.New(st, load.Config{
		Chunk: 1_000,
		Codes: func(_ context.Context, _ string, after int64, n int) ([]string, error) {
			return codes[after:min(after+int64(n), int64(len(codes)))], nil
		},
	})
	if err != nil {
		return nil, err
	}
	return plan, loader.Load(ctx, c, plan, campaign.Commit(c, seed), nil)
}

// Rain returns a red-packet campaign that is open now, with packets of equal amounts and one packet for each
// user.
func Rain(id string, packets int64, total hongbao.Amount) hongbao.Campaign {
	now := time.Now().Truncate(time.Millisecond)
	return campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: total, Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitEven}, From: now.Add(-time.Hour), To: now.Add(time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme",
	})
}
