package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
)

// readLedger compares the ledger with itself and takes in its grants.
func (r *run) readLedger(ctx context.Context) error {
	if r.Ledger == nil {
		return nil
	}
	sum, err := r.Ledger.Summary(ctx)
	if err != nil {
		return err
	}
	for _, p := range sum.Problems {
		r.found(Difference{Kind: LedgerUnbalanced, Where: "ledger", Detail: p})
	}
	for i := range sum.Campaigns {
		l := &sum.Campaigns[i]
		if c := r.campaign(l.ID); c != nil {
			c.ledger = l
			c.counts.Refunded, c.counts.Open = l.Refunded, l.Open
			r.balance(l)
		}
	}
	for _, c := range r.sorted() {
		if c.ledger != nil && c.ledger.Sealed && !c.inRedis() && !r.partial() {
			if err := r.passOver(ctx, c); err != nil {
				return err
			}
			continue
		}
		err := r.Ledger.EachGrant(ctx, c.id, func(g hongbao.Grant) error {
			r.observe(inLedger, &g)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.Ledger.EachQuarantined(ctx, func(q Quarantined) error {
		r.quarantined(&q)
		return nil
	})
}

// passOver takes a sealed campaign as it was audited: only its seqs are noted, so that they are no gap.
func (r *run) passOver(ctx context.Context, c *campaign) error {
	seqs, err := r.Ledger.SealedSeqs(ctx, c.id)
	if err != nil {
		return err
	}
	for shard, runs := range seqs {
		for _, run := range runs {
			for seq := run.First; seq <= run.Last && shard < len(r.shards); seq++ {
				r.shards[shard].seen.add(seq)
			}
		}
	}
	c.sealed, c.facts = true, table[fact]{}
	c.counts.Settled, c.counts.SettledAmount = c.ledger.Grants, c.ledger.Granted
	return nil
}

// balance compares the ledger's counts of one campaign.
func (r *run) balance(l *LedgerCampaign) {
	bad := func(format string, args ...any) {
		r.found(Difference{Kind: LedgerUnbalanced, Where: "ledger", Campaign: l.ID, Detail: fmt.Sprintf(format, args...)})
	}
	if l.Funded != l.Granted+l.Refunded+l.Open {
		bad("funded %d, but granted %d + refunded %d + open %d = %d", l.Funded, l.Granted, l.Refunded, l.Open,
			l.Granted+l.Refunded+l.Open)
	}
	if !l.Closed && l.Refunded != 0 || l.Closed && l.Refunded != l.Funded-l.Granted {
		bad("refunded %d of funded %d with %d granted, closed: %t", l.Refunded, l.Funded, l.Granted, l.Closed)
	}
}

func (r *run) quarantined(q *Quarantined) {
	c := r.campaign(q.Grant.Campaign)
	if c == nil {
		return
	}
	g := &q.Grant
	if f := c.facts.find(g.Packet); f != nil && f.from&told != 0 &&
		f.digest == r.digest(g.User, g.Amount, g.Shard, g.Seq) {
		f.from |= inQuarantine
	}
	if q.Resolution != "" {
		r.decide(g)
	} else {
		r.found(Difference{Kind: InQuarantine, Where: "ledger", Campaign: c.id, Packet: g.Packet, Event: g.EventID(),
			Detail: fmt.Sprintf("quarantine %d, %s: %s", q.ID, q.Reason, describeGrant(g))})
	}
}

// readTopic takes in the grants of the topic.
func (r *run) readTopic(ctx context.Context) error {
	if r.Topic == nil {
		return nil
	}
	scan, err := r.Topic.Each(ctx, func(_ int, _ int64, g hongbao.Grant) error {
		r.observe(inTopic, &g)
		return nil
	})
	if err != nil {
		return err
	}
	r.report.Total.Foreign = scan.Foreign
	for i, s := range r.shards {
		if n := len(scan.Starts); n > 0 && scan.Starts[i%n] > 0 { // a shard's partition is its number modulo the partitions
			if s.expired = s.firstInTopic; s.expired == 0 {
				s.expired = s.seq + 1
			}
		}
	}
	if scan.Malformed > 0 {
		r.found(Difference{Kind: MalformedRecord, Where: "topic",
			Detail: fmt.Sprintf("%d records; the first one: %v", scan.Malformed, scan.FirstMalformed)})
	}
	return nil
}
