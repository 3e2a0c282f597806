package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// judgeCloses marks the seqs of all closes as seen: a close is an event without a grant. It reads the close from the
// stream as long as the stream keeps it, then from the campaign in Redis. Once the campaign has left Redis, it reads
// the close from the ledger's refund.
func (r *run) judgeCloses(c *campaign) {
	for shard, snap := range c.on {
		s := r.shards[shard]
		e, kept := s.closes[c.id]
		switch {
		case kept && !snap.over() && e.Seq <= snap.seq:
			r.found(model.Difference{Kind: CampaignBroken, Where: s.Keys.Campaign(c.id), Campaign: c.id,
				Event:  stream.EventID(shard, e.Seq),
				Detail: fmt.Sprintf("the stream has the close of the campaign, but its state is %.20q", snap.state)})
		case kept && snap.over() && e.Seq != snap.closeSeq:
			r.found(model.Difference{Kind: CounterDrift, Where: "campaign", Campaign: c.id, Event: stream.EventID(shard, e.Seq),
				Detail: fmt.Sprintf("the stream has the close with this seq, the campaign as %s", stream.EventID(shard, snap.closeSeq))})
		case !kept && snap.over():
			r.trimmedClose(c, s, snap.closeSeq)
		}
	}
	if c.ledger == nil {
		return
	}
	for _, e := range c.ledger.Closes {
		if e.Shard >= 0 && e.Shard < len(r.shards) && e.Seq > 0 {
			r.judgeRefunded(c, r.shards[e.Shard], e.Seq)
		}
	}
}

// judgeRefunded compares the close that the ledger's refund is based on with the close that Redis still has.
func (r *run) judgeRefunded(c *campaign, s *shard, seq int64) {
	has := int64(0)
	if e, kept := s.closes[c.id]; kept {
		has = e.Seq
	}
	if snap := c.on[s.Index()]; snap != nil {
		has = snap.closeSeq
		if !snap.over() {
			return // judgeRefund reports this
		}
	}
	if has == 0 {
		r.trimmedClose(c, s, seq)
	} else if has != seq {
		r.found(model.Difference{Kind: CounterDrift, Where: "ledger", Campaign: c.id, Event: stream.EventID(s.Index(), seq),
			Detail: "the refund is based on this event, Redis has another close"})
	}
}

// trimmedClose handles a close that the stream no longer has: it marks the seq of the close as seen.
func (r *run) trimmedClose(c *campaign, s *shard, seq int64) {
	if !s.seen.add(seq) && !r.partial() {
		r.found(model.Difference{Kind: DuplicateSeq, Where: "campaign", Campaign: c.id, Event: stream.EventID(s.Index(), seq),
			Detail: "the campaign's close has this seq, and so has a grant or another close"})
		return
	}
	s.report.TrimmedCloses++
}

// closedBy returns the seq of a campaign's close on a shard; 0 if no source has a close there.
func (r *run) closedBy(c *campaign, shard int) int64 {
	if snap := c.on[shard]; snap != nil && snap.over() {
		return snap.closeSeq
	}
	if e, ok := r.shards[shard].closes[c.id]; ok {
		return e.Seq
	}
	if c.ledger != nil {
		for _, e := range c.ledger.Closes {
			if e.Shard == shard {
				return e.Seq
			}
		}
	}
	return 0
}

// judgeRefund compares the refund in Redis with the refund in the ledger, for a campaign that both have. The ledger was
// read after Redis. So if only the ledger has the refund, judgeRefund reads the campaign's state in Redis again.
func (r *run) judgeRefund(ctx context.Context, c *campaign) error {
	l := c.ledger
	for shard, snap := range c.on {
		if snap.state == store.StateRefunded && !l.Closed {
			r.differs(c, FundingDiffers, "ledger", "Redis says that it was refunded, the ledger has no refund")
		}
		if !l.Closed || snap.over() {
			continue
		}
		state, _, err := r.shards[shard].Place(c.id).CampaignState(ctx)
		if err != nil {
			return err
		}
		if state != "" && state != store.StateClosed && state != store.StateRefunded {
			r.differs(c, FundingDiffers, "ledger",
				"the ledger has refunded it, but in Redis it is %.20q%s: Redis went back in time", state, c.where(shard))
		}
	}
	return nil
}
