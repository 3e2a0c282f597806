package dev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

// campaignID is the campaign of the demo, in which users of `hongbao dev` can try grabs. crowdID is
// the first campaign of the simulated crowd.
const campaignID, crowdID = "demo", "crowd"

const (
	packets  = 10_000
	total    = 100_000
	currency = "CNY"
	open     = 365 * 24 * time.Hour
)

// readyCampaign returns the id of a campaign that is open and has packets left. It tries first, then first-2,
// first-3 and so on, since a campaign may be over. If the next id is unused, it creates that campaign.
func readyCampaign(ctx context.Context, a *app.App, first, name string) (string, error) {
	id := first
	for n := 2; ; n++ {
		has, err := campaigns.Of(a).Show(ctx, id)
		switch {
		case errors.Is(err, ledger.ErrNoCampaign):
			_, err = create(ctx, a, id, name, packets, total)
			return id, err
		case err != nil:
			return id, err
		case has.Redis == nil || has.Redis.State == store.StateLoading: // an earlier run stopped during the load
			_, err = campaigns.Of(a).Load(ctx, id)
			return id, err
		case has.Redis.State == store.StateOpen && has.Redis.Left > 0 && time.Now().Before(has.Spec.To):
			return id, nil
		}
		id = fmt.Sprintf("%s-%d", first, n)
	}
}

// create funds and loads a campaign that is already open. It returns the hash of its plan.
func create(ctx context.Context, a *app.App, id, name string, packets int64, total hongbao.Amount) (string, error) {
	now := time.Now().Truncate(time.Second)
	created, err := campaigns.Of(a).Create(ctx, campaign.Complete(hongbao.Campaign{
		ID: id, Name: name, Kind: hongbao.KindRedPacket, Currency: currency, Total: total, Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total},
		From:  now.Add(-time.Minute), To: now.Add(open), TimeZone: "Asia/Shanghai", Sponsor: "acme",
		Durability: hongbao.DurabilityFast,
	}), nil)
	if err != nil {
		return "", err
	}
	_, err = campaigns.Of(a).Load(ctx, id)
	return created.Hash, err
}
