package ledger

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
)

// Plan returns what the plan of a campaign is made from: its specification, its seed and the draws of its top-ups. It
// is the Source of campaign.Plans. If the ledger does not have the campaign, its grants wait (hongbao.IsWaiting).
func (l *Ledger) Plan(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, []campaign.TopUp, error) {
	c, stored, err := l.CampaignWithTopUps(ctx, id)
	if errors.Is(err, ErrNoCampaign) { // a held grant takes no attempt
		err = hongbao.Waitingf("campaign %s: %w, its grants wait: check that ledger.dsn names the right ledger and no older copy",
			id, ErrNoCampaign)
	}
	return c.Spec, c.Seed, Draws(&c, stored), err
}

// Draws returns the draws of a campaign's top-ups, each chained to the previous generation's hash.
func Draws(c *StoredCampaign, stored []StoredTopUp) []campaign.TopUp {
	before, list := c.Hash, make([]campaign.TopUp, len(stored))
	for i := range stored {
		list[i] = stored[i].Draw(before)
		before = stored[i].Hash
	}
	return list
}

// Draw returns the draw of a top-up. before is the hash of the previous generation.
func (o *TopUp) Draw(before string) campaign.TopUp {
	return campaign.TopUp{Campaign: o.Campaign, Generation: o.Generation, Packets: o.Packets, Total: o.Total,
		Split: o.Split, Before: before, Seed: o.Seed}
}
