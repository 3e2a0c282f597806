package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

// GrabTerms are what a producer needs to know of a campaign. They are constant for the life of the campaign.
type GrabTerms struct {
	PerUser    int64  // most packets of a user
	FactNames  string // names of the facts that a grab must have, with commas between them
	Durability hongbao.Durability
	Codes      bool   // its packets have codes
	Currency   string // empty for none
	Places     int
	Ends       time.Time
}

// GrabTerms reads the terms of a campaign. It returns nil if the shard does not have the campaign. The error is Broken
// if the shard belongs to another deployment, and ErrFrozen if the shard is not open on this server or has lost the
// campaign.
func (p Place) GrabTerms(ctx context.Context) (*GrabTerms, error) {
	node, err := p.Node(ctx)
	if err != nil {
		return nil, err
	}
	pipe := node.Pipeline()
	belongs, open := p.askBelongs(ctx, pipe), p.askOpen(ctx, pipe)
	fields := p.Keys.askFields(ctx, pipe, p.Campaign, "user_campaign", "fact_names", "durability", CodesField, placesField,
		"walk", "hash", "state", "to", "currency")
	_, _ = pipe.Exec(ctx) // each command has its own error
	f, err := fields()
	if err == nil {
		err = cmp.Or(belongs(), open())
	}
	if err != nil {
		return nil, fmt.Errorf("look for campaign %s: %w", p.Campaign, err)
	}
	return p.grabTerms(f)
}

func (k *Shard) grabTerms(f *CampaignFields) (*GrabTerms, error) {
	if !f.Has("user_campaign") {
		return nil, nil
	}
	lost := f.Hash == StubHash
	if lost && f.State == StateFrozen {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "%w: this Redis has lost campaign %s, and does not know its "+
			"limits; `hongbao campaign refund-lost %s` ends it", ErrFrozen, f.campaign, f.campaign)
	}
	if err := f.Need("user_campaign", "to"); err != nil {
		return nil, err
	}
	if f.PerUser < 1 {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: user_campaign is 0, want a number above 0",
			f.campaign)
	}
	t := &GrabTerms{PerUser: f.PerUser, FactNames: f.FactNames, Durability: f.Durability, Codes: f.Codes,
		Currency: f.Currency, Places: 1, Ends: f.To}
	if !f.Has(placesField) {
		return t, nil
	}
	if f.Places < 1 || f.Places > int64(min(k.store.Len(), hongbao.MaxCampaignShards)) {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %d shards, but the deployment "+
			"has %d", f.campaign, f.Places, k.store.Len())
	}
	if f.Walk != walk.Version && !lost { // grabs in a lost campaign only find that it has ended
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: its walk over the shards has version "+
			"%.20q, but this build only knows %s: run the build that loaded it", f.campaign, f.Walk, walk.Version)
	}
	t.Places = int(f.Places)
	return t, nil
}
