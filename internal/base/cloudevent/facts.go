package cloudevent

import (
	"cmp"
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// Facts are constant facts about a campaign that the events of its grants need.
type Facts struct {
	// Currency is empty if the campaign's packets have no value.
	Currency string
	// Codes reports whether every packet has a code.
	Codes bool
}

// Campaigns supplies data that a grant from the stream may lack. Its methods must be safe for concurrent use.
type Campaigns interface {
	// Terms returns the facts of a campaign that has grants on the shard. It returns false if the campaign is unknown.
	// It is called for every batch, so it should cache.
	Terms(ctx context.Context, shard int, campaign string) (Facts, bool, error)
	// Codes returns the codes of packets that were granted on the shard, in the order of packets. "" means that a
	// packet certainly has no code.
	Codes(ctx context.Context, shard int, campaign string, packets []int64) ([]string, error)
}

// Complete returns a copy of the grants with currency and code; the originals belong to the caller. It keeps a value
// that a grant already has: the stream has the currency, and the ledger has the code. without has the Permanent error
// of each grant whose campaign is unknown, or whose code is missing although its campaign has codes. If campaigns
// fails, Complete returns an outage, because no grant is at fault.
func Complete(ctx context.Context, campaigns Campaigns, grants []hongbao.Grant) (out []hongbao.Grant,
	without map[int]error, err error) {
	out, without = slices.Clone(grants), map[int]error{}
	uncoded := map[string][]int{} // indexes of the grants that need a code, by campaign
	var id string
	var facts Facts
	var known bool
	for i := range out {
		g := &out[i]
		if hongbao.CheckCampaignID(g.Campaign) != nil { // the caller has already refused this grant
			continue
		}
		if g.Campaign != id {
			if facts, known, err = campaigns.Terms(ctx, g.Shard, g.Campaign); err != nil {
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
		if g.Currency = cmp.Or(g.Currency, facts.Currency); facts.Codes && g.Code == "" {
			uncoded[id] = append(uncoded[id], i)
		}
	}
	for campaign, at := range uncoded {
		if err := addCodes(ctx, campaigns, campaign, out, at, without); err != nil {
			return nil, nil, unread(err)
		}
	}
	return out, without, nil
}

// addCodes sets the codes of the grants at the indexes at, which are all of one campaign.
func addCodes(ctx context.Context, campaigns Campaigns, campaign string, grants []hongbao.Grant, at []int,
	without map[int]error) error {
	packets := make([]int64, len(at))
	for k, i := range at {
		packets[k] = grants[i].Packet
	}
	codes, err := campaigns.Codes(ctx, grants[at[0]].Shard, campaign, packets)
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

func unread(err error) error {
	return hongbao.Outagef(hongbao.ClassTransient, "reading the currency and the codes of campaigns, nothing was sent: %w",
		err)
}
