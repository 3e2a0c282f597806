package app

import (
	"context"

	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// topUps reads what was added to a campaign.
func topUps(ctx context.Context, l *ledger.Ledger, id string) ([]campaign.TopUp, error) {
	c, stored, err := l.CampaignWithTopUps(ctx, id)
	before, list := c.Hash, make([]campaign.TopUp, len(stored))
	for i := range stored {
		o := &stored[i]
		list[i] = campaign.TopUp{Campaign: o.Campaign, Generation: o.Generation, Packets: o.Packets, Total: o.Total,
			Split: o.Split, Before: before, Seed: o.Seed}
		before = o.Hash
	}
	return list, err
}

// planOf draws all packets of a campaign, with those that were added to it.
func planOf(ctx context.Context, l *ledger.Ledger, c *ledger.StoredCampaign) (*campaign.Plan, error) {
	plan, err := campaign.NewPlan(c.Spec, c.Seed)
	if err != nil {
		return nil, err
	}
	added, err := topUps(ctx, l, c.Spec.ID)
	for i := 0; err == nil && i < len(added); i++ {
		var more *campaign.Plan
		if more, err = added[i].Plan(c.Spec); err == nil {
			plan.Amounts = append(plan.Amounts, more.Amounts...)
		}
	}
	return plan, err
}

// disclosed tells the draws of what was added.
func disclosed(added []campaign.TopUp) (list []campaign.DisclosedTopUp) {
	for i := range added {
		t := &added[i]
		list = append(list, campaign.DisclosedTopUp{Canonical: string(t.Canonical()), Hash: t.Commit(), Seed: t.Seed.Hex()})
	}
	return list
}
