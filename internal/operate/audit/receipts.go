package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

func (r *run) readReceipts(ctx context.Context, s *shard, c *campaign, snap *snapshot) error {
	broken := map[string]bool{} // users already reported: HSCAN may return a user twice
	return s.Place(c.id).EachReceiptsText(ctx, func(user, text string) error {
		list, err := store.ParseReceipts(s.Index(), snap.from, text)
		if err != nil {
			if !broken[user] {
				broken[user] = true
				c.reportedPackets++
				r.differs(c, CampaignBroken, "receipts", "the receipts of user %.80q can't be read: %v", user, err)
			}
			return nil
		}
		if int64(len(list)) > snap.limit && snap.places == 1 && !broken[user] {
			allowed, err := r.allowed(ctx, c, snap, user)
			if err != nil {
				return err
			}
			if int64(len(list)) > allowed {
				broken[user] = true
				r.differs(c, OverHold, "receipts", "user %.80q has %d packets, at most %d are allowed", user, len(list), allowed)
			}
		}
		for i := range list {
			if err := r.receipt(ctx, s, c, snap, user, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// allowed returns how many packets a user may have who has more than the campaign's limit: those that a person granted
// above it come on top.
func (r *run) allowed(ctx context.Context, c *campaign, snap *snapshot, user string) (int64, error) {
	if c.aboveLimit == nil && r.AboveLimit != nil {
		above, err := r.AboveLimit(ctx, c.id)
		if err != nil {
			return 0, fmt.Errorf("campaign %s: read who may have more packets than the limit: %w", c.id, err)
		}
		c.aboveLimit = above
	}
	return snap.limit + c.aboveLimit[user], nil
}

func (r *run) receipt(ctx context.Context, s *shard, c *campaign, snap *snapshot, user string,
	rc *hongbao.Receipt) error {
	if rc.Packet > snap.packets && rc.Seq > snap.seq {
		return nil // belongs to a generation that was announced after the snapshot
	}
	if rc.Packet < 1 || rc.Packet > snap.packets || rc.Seq < 1 || snap.dealtTo(rc.Packet) != snap.place {
		c.reportedPackets++
		r.found(model.Difference{Kind: PacketUnknown, Where: "receipts", Campaign: c.id, Packet: rc.Packet,
			Event: stream.EventID(s.Index(), max(rc.Seq, 0)),
			Detail: fmt.Sprintf("user %.80q has packet %d with seq %d; want packets 1 to %d of place %d of %d, seqs from 1",
				user, rc.Packet, rc.Seq, snap.packets, snap.place, snap.places)})
		return nil
	}
	f, digest := c.facts.at(rc.Packet), r.digest(user, rc.Amount, s.Index(), rc.Seq)
	if f.has(inReceipts) {
		if f.digest != digest { // an equal digest means that HSCAN returned the user twice
			c.reportedPackets++
			s.seen.add(rc.Seq) // or its seq would count as a gap
			r.foundPacket(c, rc.Packet, f, model.Difference{Kind: PacketTwice, Where: "receipts",
				Detail: fmt.Sprintf("granted twice; user %q has it with amount %d, seq %d", user, rc.Amount, rc.Seq)})
		}
		return nil
	}
	switch {
	case rc.Seq <= snap.seq:
		snap.receipts++
		snap.receiptSum += rc.Amount
	case !f.has(inStock): // it was granted between the snapshot and the reading of the stock
		snap.stockSum += rc.Amount
	}
	if !s.seen.add(rc.Seq) {
		r.found(model.Difference{Kind: DuplicateSeq, Where: "receipts", Campaign: c.id, Packet: rc.Packet,
			Event:  stream.EventID(s.Index(), rc.Seq),
			Detail: fmt.Sprintf("another grant has this seq too; here it is user %q, amount %d", user, rc.Amount)})
	}
	f.digest, f.seq, f.shard, f.time = digest, rc.Seq, int16(s.Index()), uint32(rc.Time.Unix())
	f.from |= inReceipts
	if err := r.countOf(ctx, c, snap, user); err != nil {
		return err
	}
	return r.planned(ctx, c, rc.Packet, rc.Amount, "receipts")
}

// describe adds to each difference of a single grant what the receipts say about its packet.
func (r *run) describe(ctx context.Context) error {
	for id, packets := range r.wanted {
		for shard, snap := range r.campaigns[id].on {
			err := r.shards[shard].Place(id).EachReceiptsText(ctx, func(user, text string) error {
				list, err := store.ParseReceipts(shard, snap.from, text)
				if err != nil {
					return nil //nolint:nilerr // it was reported when it was read first
				}
				for _, rc := range list {
					for _, d := range packets[rc.Packet] {
						d.Receipt = fmt.Sprintf("the receipts have user %q, amount %d, event %s", user, rc.Amount, stream.EventID(shard, rc.Seq))
					}
					delete(packets, rc.Packet)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("campaign %s: %w", id, err)
			}
		}
	}
	return nil
}
