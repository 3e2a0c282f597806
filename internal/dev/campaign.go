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
	"github.com/hongbao-project/hongbao/internal/store"
)

// campaignID names the campaign for trying grabs; with a number at its end, once the first one is over.
const campaignID = "demo"

const (
	packets = 10_000
	total   = 100_000
	open    = 365 * 24 * time.Hour
)

// readyCampaign returns a campaign that is open and has packets left. It makes one if there is none.
func readyCampaign(ctx context.Context, a *app.App) (hongbao.Campaign, error) {
	id := campaignID
	for n := 2; ; n++ {
		has, found, err := find(ctx, a, id)
		switch {
		case err != nil:
			return has.Spec, err
		case !found:
			return create(ctx, a, id, "A rain to try")
		case has.Redis == nil || has.Redis.State == store.StateLoading: // an earlier start was stopped midway
			return a.Load(ctx, id)
		case has.Redis.State == store.StateOpen && has.Redis.Left > 0 && time.Now().Before(has.Spec.To):
			return has.Spec, nil
		}
		id = fmt.Sprintf("%s-%d", campaignID, n)
	}
}

// find returns the state of a campaign, and false if there is none.
func find(ctx context.Context, a *app.App, id string) (app.Shown, bool, error) {
	has, err := a.Show(ctx, id)
	if errors.Is(err, ledger.ErrNoCampaign) {
		return has, false, nil
	}
	return has, err == nil, err
}

// create funds and loads a campaign that is open from now on.
func create(ctx context.Context, a *app.App, id, name string) (hongbao.Campaign, error) {
	now := time.Now().Truncate(time.Second)
	spec := campaign.Complete(hongbao.Campaign{
		ID: id, Name: name, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: total, Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 2000},
		From:  now.Add(-time.Minute), To: now.Add(open), TimeZone: "Asia/Shanghai", Sponsor: "acme",
		Durability: hongbao.DurabilityFast,
	})
	if _, err := a.Create(ctx, spec, nil); err != nil {
		return spec, err
	}
	return a.Load(ctx, id)
}

// openOnce opens a campaign for the crowd, unless an earlier start made it.
func openOnce(ctx context.Context, a *app.App, id string) (spec hongbao.Campaign, before bool, err error) {
	has, before, err := find(ctx, a, id)
	if err != nil || before {
		return has.Spec, before, err
	}
	spec, err = create(ctx, a, id, "A crowd's rain")
	return spec, false, err
}
