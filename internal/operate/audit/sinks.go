package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
)

func (r *run) readLedger(ctx context.Context) error {
	if r.Ledger == nil {
		return nil
	}
	err := r.Ledger.EachTotals(ctx, func(t *books.Totals) error {
		if c := r.campaign(t.Campaign); c != nil {
			c.ledger = new(*t)
			c.counts.Refunded, c.counts.Open = t.Refunded, t.Pool
			r.balance(c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	conserves := r.Ledger.CheckConservation
	if r.opts.Full {
		conserves = r.Ledger.CheckEveryAccount
	}
	for _, check := range []func(context.Context) ([]books.Difference, error){conserves, r.Ledger.CheckCredits} {
		problems, err := check(ctx)
		if err != nil {
			return err
		}
		for _, p := range problems {
			r.found(model.Difference{Kind: LedgerUnbalanced, Where: "ledger", Detail: p.String()})
		}
	}
	for _, c := range r.sorted() {
		if c.ledger != nil && c.ledger.Sealed && !c.inRedis() && (c.ledger.Archived || !r.partial() && !r.opts.Full) {
			err = r.skipSealed(ctx, c)
		} else {
			err = r.Ledger.EachGrant(ctx, c.id, func(g hongbao.Grant) error {
				r.observe(inLedger, &g)
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return r.Ledger.EachQuarantined(ctx, r.quarantined)
}

// balance checks that the ledger's counters of one campaign agree with each other.
func (r *run) balance(c *campaign) {
	l := c.ledger
	if l.Funded != l.Granted+l.Refunded+l.Pool {
		r.differs(c, LedgerUnbalanced, "ledger", "funded %d, but granted %d + refunded %d + open %d = %d", l.Funded,
			l.Granted, l.Refunded, l.Pool, l.Granted+l.Refunded+l.Pool)
	}
	if !l.Closed && l.Refunded != 0 || l.Closed && l.Refunded != l.Funded-l.Granted {
		r.differs(c, LedgerUnbalanced, "ledger", "refunded %d of funded %d with %d granted, closed: %t", l.Refunded, l.Funded,
			l.Granted, l.Closed)
	}
}

// skipSealed skips the grants of a sealed campaign, which an earlier audit has judged. It adds only their seqs, so that
// they are not reported as a gap.
func (r *run) skipSealed(ctx context.Context, c *campaign) error {
	seqs, err := r.Ledger.SealedSeqs(ctx, c.id)
	if err != nil {
		return err
	}
	for shard, runs := range seqs {
		if shard < len(r.shards) {
			r.shards[shard].seen.addAll(runs)
		}
	}
	c.sealed, c.facts = true, table[fact]{}
	c.counts.Settled, c.counts.SettledAmount = c.ledger.Grants, c.ledger.Granted
	return nil
}

func (r *run) quarantined(q *model.Quarantined) {
	g := &q.Grant
	c := r.campaign(g.Campaign)
	if c == nil {
		return
	}
	digest := r.digest(g.User, g.Amount, g.Shard, g.Seq)
	if f := c.facts.find(g.Packet); f != nil && f.from&whoGotIt != 0 && f.digest == digest {
		f.from |= inQuarantine
	}
	if q.Resolution == "" {
		r.found(model.Difference{Kind: InQuarantine, Where: "ledger", Campaign: c.id, Packet: g.Packet, Event: g.EventID(),
			Detail: fmt.Sprintf("quarantine %d, %s: %s", q.ID, q.Reason, describeGrant(g))})
		return
	}
	r.decisions[digest] = fmt.Sprintf("%.128s decided about quarantine %d: %.200q", q.ResolvedBy, q.ID, q.Resolution)
	r.decided(g)
}
