package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/hongbao-project/hongbao/internal/store"
)

// dealtTo returns the place, from 0, to which a packet is dealt.
func (s *snapshot) dealtTo(packet int64) int { return int((packet - 1) % int64(s.places)) }

// refilling reports whether the newest announced generation is not completely dealt on this place.
func (s *snapshot) refilling() bool { return s.dealt < s.generation }

// derive computes the granted counts from the stock, because grabs write no counts. A close has written them, so they
// are left alone after it.
func (s *snapshot) derive() {
	switch {
	case s.over() || s.loading():
	case s.refilling():
		s.granted, s.grantedAmount = s.base-s.stocked, s.receiptSum
	default:
		s.granted, s.grantedAmount = s.loaded-s.stocked, s.loadedAmount-s.stockSum
	}
}

// findPlaces sets over how many shards each campaign is dealt, and which of these shards lack it.
func (r *run) findPlaces() {
	for _, c := range r.campaigns {
		c.places = 1
		for _, s := range c.on {
			c.places = max(c.places, s.places)
		}
		if c.places == 1 || c.places > len(r.shards) {
			continue
		}
		c.gone = map[int]bool{}
		for _, k := range r.Store.Places(c.id, c.places) {
			s := c.on[k.Index()]
			if s != nil && s.state == store.StateFrozen && s.packets == 0 { // a stub: the shard has lost the campaign
				delete(c.on, k.Index())
				s, c.stubs = nil, c.stubs+1
			}
			if s == nil {
				c.gone[k.Index()] = true
			}
		}
	}
}

// inRedisOn reports whether the shard still has its part of the campaign. Then each grant there needs a receipt.
func (c *campaign) inRedisOn(shard int) bool { return c.inRedis() && !c.gone[shard] }

// settled returns the last packet up to which all places have got their packets. steady is false while a generation is
// being dealt. The snapshots of the places are not from one instant, so some may lack a generation that is being dealt.
// If a snapshot is two generations old, packets is 0: it does not say how far the first of them is dealt.
func (c *campaign) settled() (packets int64, steady bool) {
	var newest, before int64
	steady = true
	for _, s := range c.on {
		if s.loading() {
			return 0, false
		}
		newest, packets = max(newest, s.generation), max(packets, s.packets)
	}
	for _, s := range c.on {
		if s.generation < newest-1 {
			return 0, false
		}
		if s.generation < newest || s.refilling() {
			steady = false
		}
		if s.generation < newest {
			before += s.share
		} else {
			before += s.base
		}
	}
	switch {
	case steady:
		return packets, true
	case len(c.gone) > 0:
		return 0, false
	}
	return before, false
}

// countOf counts the packets of a user over all places of a campaign. The caller passes each receipt once.
func (r *run) countOf(ctx context.Context, c *campaign, snap *snapshot, user string) error {
	if snap.places == 1 {
		return nil // the user has one list of receipts, whose length was checked
	}
	if c.perUser == nil {
		c.perUser = map[uint64]int32{}
	}
	of := maphash.String(r.seed, user)
	if c.perUser[of]++; int64(c.perUser[of]) <= snap.limit {
		return nil
	}
	allowed, err := r.allowed(ctx, c, snap, user)
	if err == nil && int64(c.perUser[of]) == allowed+1 {
		r.differs(c, OverHold, "receipts", "user %.80q has more than the %d packets that are allowed, over its %d shards",
			user, allowed, snap.places)
	}
	return err
}

// judgePlaces reports places that lack the campaign while other places have it. It accepts that while the campaign is
// being loaded, and after it was refunded.
func (r *run) judgePlaces(ctx context.Context, c *campaign) error {
	if len(c.gone) == c.lostOn+c.stubs || r.report.Found[CampaignBroken] > 0 {
		return nil
	}
	for _, s := range c.on {
		if s.loading() || s.state == store.StateRefunded {
			return nil
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(c.gone)) {
		found, err := r.shards[shard].Place(c.id).HasCampaign(ctx)
		if err != nil {
			return err
		}
		if !found {
			r.differs(c, CampaignMissing, r.shards[shard].Keys.Campaign(c.id), "it is dealt over %d shards, and shard %d does not have it",
				c.places, shard)
		}
	}
	return nil
}

// judgeShares compares the sum of the places' shares with the packets of the whole campaign.
func (c *campaign) judgeShares(drift func(format string, args ...any)) {
	packets, steady := c.settled()
	if !steady || len(c.gone) > 0 {
		return
	}
	var dealt int64
	for _, s := range c.on {
		dealt += s.share
	}
	if dealt != packets || len(c.on) != c.places {
		drift("%d packets, but its %d shards of %d should get %d", packets, len(c.on), c.places, dealt)
	}
}

// where names the shard in a message if the campaign is on several shards.
func (c *campaign) where(shard int) string {
	if c.places == 1 {
		return ""
	}
	return fmt.Sprintf(" on shard %d", shard)
}

// judgeFunding compares the total in Redis with the ledger. Top-ups are in the ledger before they are in Redis, and
// arrive there one by one.
func (r *run) judgeFunding(ctx context.Context, c *campaign) error {
	l := c.ledger
	if has := c.counts.Funded; has == l.Funded || slices.Contains(l.Earlier, has) {
		return nil
	}
	for _, shard := range slices.Sorted(maps.Keys(c.on)) {
		has, err := r.shards[shard].Place(c.id).CampaignKeys(ctx)
		if err != nil {
			return err
		}
		if !has.Fields.Has("total") || int64(has.Fields.Total) == int64(l.Funded) {
			return nil // the top-up arrived, or the campaign left Redis, during the audit
		}
	}
	r.differs(c, FundingDiffers, "ledger", "Redis has a total of %d, the ledger has funded %d", c.counts.Funded, l.Funded)
	return nil
}
