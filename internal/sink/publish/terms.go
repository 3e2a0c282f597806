package publish

import (
	"cmp"
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// addTerms sets the currency and the code of each grant in the call. A grant of an unknown campaign gets a Permanent
// error. So does a grant whose code is missing although its campaign has codes. If Campaigns fails, addTerms returns an
// error for all grants, and nothing is sent.
func (p *Publisher) addTerms(ctx context.Context, c *call) error {
	grants, without, err := p.withTerms(ctx, c.grants)
	if err != nil {
		return err
	}
	c.grants = grants
	for i, err := range without {
		c.settle([]stream.SeqRange{{First: grants[i].Seq, Last: grants[i].Seq}}, err)
	}
	return nil
}

// withTerms returns a copy of the grants with currency and code; the originals belong to the caller. It keeps a value
// that a grant already has: the stream has the currency, and the ledger has the code. without has the error of each
// grant that can't be a message.
func (p *Publisher) withTerms(ctx context.Context, grants []hongbao.Grant) (out []hongbao.Grant, without map[int]error,
	err error) {
	if p.cfg.Campaigns == nil {
		return grants, nil, nil
	}
	out, without = slices.Clone(grants), map[int]error{}
	uncoded := map[string][]int{} // indexes of the grants that need a code, by campaign
	var id string
	var terms CampaignFacts
	var known bool
	for i := range out {
		g := &out[i]
		if hongbao.CheckCampaignID(g.Campaign) != nil { // admit has already refused this grant
			continue
		}
		if g.Campaign != id {
			if terms, known, err = p.cfg.Campaigns.Terms(ctx, g.Shard, g.Campaign); err != nil {
				return nil, nil, unread(err)
			}
			id = g.Campaign
		}
		if !known {
			without[i] = hongbao.Errorf(hongbao.ClassPermanent,
				"campaign %s is neither in Redis nor in the ledger, so the currency of "+
					"packet %d is unknown: bring back the campaign, then requeue the grant", g.Campaign, g.Packet)
			continue
		}
		if g.Currency = cmp.Or(g.Currency, terms.Currency); terms.Codes && g.Code == "" {
			uncoded[id] = append(uncoded[id], i)
		}
	}
	for campaign, at := range uncoded {
		if err := p.addCodes(ctx, campaign, out, at, without); err != nil {
			return nil, nil, unread(err)
		}
	}
	return out, without, nil
}

// addCodes sets the codes of the grants at the indexes at, which are all of one campaign.
func (p *Publisher) addCodes(ctx context.Context, campaign string, grants []hongbao.Grant, at []int,
	without map[int]error) error {
	packets := make([]int64, len(at))
	for k, i := range at {
		packets[k] = grants[i].Packet
	}
	codes, err := p.cfg.Campaigns.Codes(ctx, grants[at[0]].Shard, campaign, packets)
	if err != nil {
		return err
	}
	for k, i := range at {
		if grants[i].Code = codes[k]; codes[k] == "" {
			without[i] = hongbao.Errorf(hongbao.ClassPermanent,
				"packet %d of campaign %s has no code, neither in Redis nor in the ledger: restore it, "+
					"then requeue the grant", packets[k], campaign)
		}
	}
	return nil
}

// unread returns an outage, because the error is not the fault of any grant.
func unread(err error) error {
	return hongbao.Outagef(hongbao.ClassTransient, "reading the currency and the codes of campaigns, nothing was sent: %w",
		err)
}
