package publisher

import (
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// addCodes gives the call's grants their codes. A grant that has none although its campaign has codes is settled with a
// Permanent error; that codes can't be read concerns all, and nothing is sent.
func (p *Publisher) addCodes(ctx context.Context, c *call) error {
	grants, without, err := p.coded(ctx, c.grants)
	if err != nil {
		return err
	}
	c.grants = grants
	for _, i := range without {
		g := &grants[i]
		c.settle([]hongbao.SeqRange{{First: g.Seq, Last: g.Seq}}, hongbao.Errorf(hongbao.Permanent,
			"packet %d of campaign %s has no code, neither in Redis nor in the ledger: put it back, then requeue the grant", g.Packet, g.Campaign))
	}
	return nil
}

// coded gives the grants with their codes: grants itself if none of their campaigns has any, else a copy, as grants belong
// to the caller. Those that bring a code keep it: they come from the ledger. without are those that have none.
func (p *Publisher) coded(ctx context.Context, grants []hongbao.Grant) (out []hongbao.Grant, without []int, err error) {
	wanted, err := p.uncoded(ctx, grants)
	if err != nil || len(wanted) == 0 {
		return grants, nil, err
	}
	out = slices.Clone(grants)
	for campaign, at := range wanted {
		packets := make([]int64, len(at))
		for k, i := range at {
			packets[k] = out[i].Packet
		}
		codes, err := p.cfg.Codes.Codes(ctx, campaign, packets)
		if err != nil {
			return nil, nil, unreadCodes(err)
		}
		for k, i := range at {
			if out[i].Code = codes[k]; codes[k] == "" {
				without = append(without, i)
			}
		}
	}
	return out, without, nil
}

// uncoded finds, by campaign, the grants that want a code and bring none.
func (p *Publisher) uncoded(ctx context.Context, grants []hongbao.Grant) (map[string][]int, error) {
	if p.cfg.Codes == nil {
		return nil, nil
	}
	var wanted map[string][]int
	campaign, has := "", false
	for i := range grants {
		g := &grants[i]
		if g.Code != "" || hongbao.CheckCampaignID(g.Campaign) != nil { // admit has refused that one
			continue
		}
		if g.Campaign != campaign {
			var err error
			if has, err = p.cfg.Codes.HasCodes(ctx, g.Campaign); err != nil {
				return nil, unreadCodes(err)
			}
			campaign = g.Campaign
		}
		if !has {
			continue
		}
		if wanted == nil {
			wanted = map[string][]int{}
		}
		wanted[campaign] = append(wanted[campaign], i)
	}
	return wanted, nil
}

// unreadCodes is an outage of the whole sink, whatever failed: no grant is to blame.
func unreadCodes(err error) error {
	return hongbao.Outagef(hongbao.Transient, "reading the codes of coupons, nothing was sent: %w", err)
}
