package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// judge compares everything that was read. It asks Redis again only for campaigns that seem to be missing there.
func (r *run) judge(ctx context.Context) error {
	for _, c := range r.sorted() {
		r.judgeCloses(c)
		c.facts.each(func(packet int64, f *fact) {
			if f.from != 0 {
				r.judgePacket(c, packet, f)
			}
		})
		r.judgeMissing(c)
		r.judgeCounts(c)
		if err := r.judgePresence(ctx, c); err != nil {
			return err
		}
	}
	if !r.partial() {
		for _, s := range r.shards {
			r.judgeSeqs(s)
		}
	}
	return nil
}

// seqOn returns the last seq on the shard up to which the audit judges grants of the campaign.
func (r *run) seqOn(c *campaign, shard int16) int64 {
	if snap := c.on[int(shard)]; snap != nil {
		return snap.seq
	}
	return r.shards[shard].seq
}

func (r *run) judgePacket(c *campaign, packet int64, f *fact) {
	newer := f.from&whoGotIt != 0 && f.seq > r.seqOn(c, f.shard)
	beyond := f.seq > r.shards[f.shard].end
	decision := r.shards[f.shard].decided[f.seq]
	switch {
	case f.from&whoGotIt == 0: // the packet is in the stock only
	case newer && !beyond:
		c.counts.Newer++
	case f.has(inReceipts):
		r.judgeReceipt(c, packet, f, beyond)
	case !c.inRedisOn(int(f.shard)) && !f.has(inLedger) && decision.about(c.id, packet, f.digest):
		if _, dropped := r.sinks[0].dropped[f.shard][f.seq]; !dropped {
			f.from |= inQuarantine
		}
		r.judgeSinks(c, packet, f)
	case c.lost() && !f.has(inLedger) && !f.has(inStream): // only the topic has it; a person ended the campaign
		r.dropped(c, packet, f, r.sinks[0], c.ended())
	case c.lost():
		r.judgeSinks(c, packet, f)
	case c.inRedisOn(int(f.shard)) || !f.has(inLedger) && r.Ledger != nil:
		if c.inRedis() && !f.has(inStock) {
			c.reportedPackets++
		}
		r.foundPacket(c, packet, f, model.Difference{Kind: Unfounded, Where: f.where(), Detail: "no receipt has it"})
	case f.has(inLedger):
		r.judgeSinks(c, packet, f)
	}
}

func (f *fact) where() string {
	var names []string
	for _, s := range []source{inStream, inLedger, inRemote, inTopic} {
		if f.has(s) {
			names = append(names, sourceNames[s])
		}
	}
	return strings.Join(names, ", ")
}

func (r *run) judgeReceipt(c *campaign, packet int64, f *fact, beyond bool) {
	if f.has(inStock) {
		c.reportedPackets++
		r.foundPacket(c, packet, f, model.Difference{Kind: PacketTwice, Where: "stock",
			Detail: "it is in the stock and was granted"})
	}
	s := r.shards[f.shard]
	if beyond {
		c.reportedPackets++
		r.foundPacket(c, packet, f, model.Difference{Kind: SeqBeyond, Where: s.Keys.Meta(),
			Detail: fmt.Sprintf("the shard's last seq is %d", s.end)})
	}
	if closed := r.closedBy(c, s.Index()); closed > 0 && f.seq > closed {
		r.foundPacket(c, packet, f, model.Difference{Kind: AfterClose, Where: "receipts",
			Detail: fmt.Sprintf("the campaign was closed on the shard by event %s", stream.EventID(s.Index(), closed))})
	}
	r.judgeSinks(c, packet, f)
}

func (r *run) judgeSinks(c *campaign, packet int64, f *fact) {
	flying := false
	r.judgeRemote(c, packet, f)
	for _, k := range r.sinks {
		if f.has(k.from) || k.from == inLedger && f.has(inQuarantine) {
			continue
		}
		if detail, ok := k.dead[f.shard][f.seq]; ok {
			r.foundPacket(c, packet, f, model.Difference{Kind: DeadLetter, Where: k.group, Detail: detail})
			continue
		}
		if why, ok := k.dropped[f.shard][f.seq]; ok {
			r.dropped(c, packet, f, k, why)
			continue
		}
		if k.from == inTopic && int64(f.time) < r.shards[f.shard].whole {
			c.counts.Expired++
			continue
		}
		if !k.owed[f.shard].Owes(f.seq) {
			c.counts.NotOwed++
			continue
		}
		if k.at[f.shard].done(f.seq) {
			r.foundPacket(c, packet, f, model.Difference{Kind: k.gone, Where: sourceNames[k.from],
				Detail: fmt.Sprintf("group %s has finished it, but it is not there", k.group)})
			continue
		}
		flying = true
		if k.from != inTopic {
			c.counts.Unsettled++
		} else {
			c.counts.Unpublished++
		}
	}
	if flying {
		c.counts.InFlight++
	}
}

// dropped lists a grant that a person decided not to deliver. It reports a difference only if the remote has paid the
// grant.
func (r *run) dropped(c *campaign, packet int64, f *fact, k *sink, why string) {
	if k.from == inLedger && f.has(inRemote) {
		r.paidRemotely(c, packet, f, why)
		return
	}
	c.counts.Dropped++
	if len(r.report.Dropped) < r.MaxListed {
		r.report.Dropped = append(r.report.Dropped, model.Difference{Kind: notDelivered, Where: k.group, Campaign: c.id,
			Packet: packet, Event: stream.EventID(int(f.shard), f.seq), Detail: why})
	}
}

// judgeMissing reports the packets that no source has. It skips the packets of a place that lacks the whole campaign:
// judgePlaces reports the place.
func (r *run) judgeMissing(c *campaign) {
	packets, _ := c.settled()
	places := r.Store.Places(c.id, min(c.places, len(r.shards)))
	for p := int64(1); p <= packets; p++ {
		if f := c.facts.find(p); f != nil && f.from != 0 || c.gone[places[(p-1)%int64(len(places))].Index()] {
			continue
		}
		c.reportedPackets++
		r.found(model.Difference{Kind: PacketMissing, Where: "stock", Campaign: c.id, Packet: p,
			Detail: "neither the stock nor any receipt, stream, ledger or topic has it"})
	}
}

// judgeCounts compares a campaign's counts with its stock and receipts, on each of its places. Packets that were
// already reported also change these sums, so it accepts a deviation by as many packets.
func (r *run) judgeCounts(c *campaign) {
	if !c.inRedis() {
		return
	}
	drift := func(format string, args ...any) { r.differs(c, CounterDrift, "campaign", format, args...) }
	n := &c.counts
	loading, growing := false, false
	for _, s := range c.on {
		s.derive()
		n.Packets, n.Funded = max(n.Packets, s.packets), max(n.Funded, s.total)
		n.Granted, n.GrantedAmount = n.Granted+s.granted, n.GrantedAmount+s.grantedAmount
		if s.state == store.StateOpen || s.state == store.StatePaused {
			n.Withheld += s.withheld
		}
		n.Left, n.LeftAmount = n.Left+s.loaded-s.granted, n.LeftAmount+s.loadedAmount-s.grantedAmount
		loading, growing = loading || s.loading(), growing || s.loading() || s.refilling()
	}
	if growing { // the growth of the loaded amount would show the amounts of single packets
		n.LeftAmount = n.Funded - n.GrantedAmount
	}
	for _, shard := range slices.Sorted(maps.Keys(c.on)) {
		r.judgePlace(c, shard, c.on[shard])
	}
	if !loading && c.places > 1 {
		c.judgeShares(drift)
	}
}

func (r *run) judgePlace(c *campaign, shard int, s *snapshot) {
	drift := func(format string, args ...any) {
		r.differs(c, CounterDrift, "campaign"+c.where(shard), format, args...)
	}
	if e, ok := r.shards[shard].closes[c.id]; ok && s.over() &&
		(e.Close.Granted != s.granted || e.Close.GrantedAmount != s.grantedAmount) {
		drift("the close says %d granted with amount %d, the campaign says %d with %d",
			e.Close.Granted, e.Close.GrantedAmount, s.granted, s.grantedAmount)
	}
	if s.loading() {
		if s.loaded != s.stocked {
			drift("while loading: %d packets loaded, %d in the stock", s.loaded, s.stocked)
		}
		return
	}
	if s.refilling() {
		if s.loaded < s.base || s.loaded > s.share {
			drift("%d packets before generation %d and %d with it, but %d are loaded", s.base, s.generation, s.share, s.loaded)
		} else if abs(s.base-s.receipts-s.stocked) > c.reportedPackets {
			drift("%d packets before generation %d, but %d receipts and %d in the stock", s.base, s.generation, s.receipts,
				s.stocked)
		}
		return
	}
	left, leftAmount := s.loaded-s.granted, s.loadedAmount-s.grantedAmount
	if s.loaded != s.share || s.loadedAmount != s.shareAmount {
		drift("%d packets, but granted %d + left %d = %d%s", s.share, s.granted, left, s.loaded, c.whole("; amount %d, but "+
			"granted %d + left %d = %d", "; or their amounts", s.shareAmount, s.grantedAmount, leftAmount, s.loadedAmount))
		return
	}
	if abs(s.granted-s.receipts)+abs(left-s.stocked) > c.reportedPackets {
		drift("granted %d, but %d receipts; left %d, but %d in the stock", s.granted, s.receipts, left, s.stocked)
	}
	if c.reportedPackets == 0 && c.reportedAmounts == 0 && (s.grantedAmount != s.receiptSum || leftAmount != s.stockSum) {
		drift("%s", c.whole("granted amount %d, but the receipts come to %d; left amount %d, but the stock comes to %d",
			"the amounts of receipts or stock", s.grantedAmount, s.receiptSum, leftAmount, s.stockSum))
	}
}

// whole returns a text with amounts that are left in a campaign. On one of several shards only one packet may be left,
// so no one may see the amount: whole then only says what differs.
func (c *campaign) whole(format, what string, amounts ...any) string {
	if c.places > 1 {
		return what + " differ (they are secret on one of several shards)"
	}
	return fmt.Sprintf(format, amounts...)
}

func abs(n int64) int64 { return max(n, -n) }

// judgePresence reports campaigns that are only in Redis or only in the ledger.
func (r *run) judgePresence(ctx context.Context, c *campaign) error {
	l := c.ledger
	switch {
	case l == nil && !c.inRedis() && r.partial():
		r.differs(c, CampaignMissing, "Redis, ledger", "neither has such a campaign: check the id")
	case r.Ledger == nil:
	case l == nil && c.inRedis():
		r.differs(c, CampaignMissing, "ledger", "it is in Redis, but the ledger does not have it")
	case l == nil:
	case c.inRedis():
		if err := r.judgeFunding(ctx, c); err != nil {
			return err
		}
		if err := r.judgePlaces(ctx, c); err != nil {
			return err
		}
		return r.judgeRefund(ctx, c)
	case !l.Closed && l.Grants > 0 && r.report.Found[CampaignBroken] == 0:
		for _, s := range r.shards {
			found, err := s.Place(c.id).HasCampaign(ctx)
			if err != nil {
				return err
			}
			if found {
				return nil // it was loaded during the audit
			}
		}
		r.differs(c, CampaignMissing, "Redis",
			"the ledger has settled %d of its grants and not refunded it, but it is not in Redis", l.Grants)
	}
	return nil
}

// judgeSeqs reports seqs that no event of the shard has, and unfinished events that the stream has lost.
func (r *run) judgeSeqs(s *shard) {
	for _, gap := range s.gaps {
		if k := r.unfinished(s, gap); k != nil && (s.seen.has(gap.First) || s.seen.has(gap.Last)) {
			r.found(model.Difference{Kind: StreamGap, Where: s.Keys.Events(), Event: stream.EventID(s.Index(), gap.First),
				Detail: fmt.Sprintf("seqs %d to %d are not in the stream, and group %s has not finished them", gap.First, gap.Last,
					k.group)})
		}
	}
	for seq := range s.decided {
		s.seen.add(seq)
	}
	s.seen.addAll(s.skipped)
	for _, h := range s.seen.holes(s.seq) {
		r.found(model.Difference{Kind: SeqGap, Where: s.Keys.Events(), Event: stream.EventID(s.Index(), h.First),
			Detail: fmt.Sprintf("no receipt, entry, ledger or topic has seqs %d to %d; the shard's last is %d", h.First, h.Last,
				s.seq)})
	}
}

// unfinished returns a sink that owes some of the seqs and has not finished them; nil if there is none. Then the stream
// need not have the seqs: workers also delete single finished entries after an unfinished one.
func (r *run) unfinished(s *shard, seqs stream.SeqRange) *sink {
	for _, k := range r.sinks {
		for _, owed := range store.Without([]stream.SeqRange{seqs}, k.owed[s.Index()].Not()) {
			if k.at[s.Index()].anyUndone(owed.First, owed.Last) {
				return k
			}
		}
	}
	return nil
}
