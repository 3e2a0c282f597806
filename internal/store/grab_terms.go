package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
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
func (k *Shard) GrabTerms(ctx context.Context, campaign, deployment string) (*GrabTerms, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return nil, err
	}
	pipe := node.Pipeline()
	belongs, open := k.askBelongs(ctx, pipe), k.askOpen(ctx, pipe)
	fields := pipe.HMGet(ctx, k.Keys.Campaign(campaign), "user_campaign", "fact_names", "durability", CodesField,
		placesField, "walk", "hash", "state", "to", "currency")
	_, _ = pipe.Exec(ctx) // each command has its own error
	err = fields.Err()
	if err == nil {
		err = cmp.Or(belongs(deployment), open())
	} else {
		err = Classify(err)
	}
	if err != nil {
		return nil, fmt.Errorf("look for campaign %s: %w", campaign, err)
	}
	return k.parseGrabTerms(campaign, fields.Val())
}

func (k *Shard) parseGrabTerms(campaign string, v []any) (*GrabTerms, error) {
	text := func(i int) string {
		s, _ := v[i].(string) // empty if the field is absent
		return s
	}
	if v[0] == nil {
		return nil, nil
	}
	lost := text(6) == StubHash
	if lost && text(7) == StateFrozen {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "%w: this Redis has lost campaign %s, and does not know its "+
			"limits; `hongbao campaign refund-lost %s` ends it", ErrFrozen, campaign, campaign)
	}
	t := &GrabTerms{FactNames: text(1), Durability: hongbao.Durability(text(2)), Codes: text(3) == "1", Places: 1,
		Currency: text(9)}
	var err error
	if t.PerUser, err = strconv.ParseInt(text(0), 10, 64); err != nil || t.PerUser < 1 {
		return nil, hongbao.Errorf(hongbao.ClassBroken,
			"campaign %s in Redis: user_campaign is %.20q, want a number above 0", campaign, text(0))
	}
	ms, err := strconv.ParseInt(text(8), 10, 64)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: to is %.20q, want a time in Unix ms", campaign,
			text(8))
	}
	t.Ends = time.UnixMilli(ms)
	if v[4] == nil {
		return t, nil
	}
	most := min(k.store.Len(), hongbao.MaxCampaignShards)
	if t.Places, err = strconv.Atoi(text(4)); err != nil || t.Places < 1 || t.Places > most {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %.20q shards, but the "+
			"deployment has %d", campaign, text(4), k.store.Len())
	}
	if text(5) != walk.Version && !lost { // grabs in a lost campaign only find that it has ended
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: its walk over the shards has version "+
			"%.20q, but this build only knows %s: run the build that loaded it", campaign, text(5), walk.Version)
	}
	return t, nil
}
