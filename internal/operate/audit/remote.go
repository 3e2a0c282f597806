package audit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Remote is an external balance system. It credits a grant before the ledger records the grant.
type Remote struct {
	// Ask returns the credit that is booked for a packet; false if there is none. The audit calls it concurrently. If
	// it is nil, the remote can't be queried: the audit does not compare the remote, and the report says so.
	Ask func(ctx context.Context, campaign string, packet int64) (RemoteCredit, bool, error)
	// Concurrency bounds the concurrent requests, 1 to 10,000.
	Concurrency int
}

// RemoteCredit is a credit that the remote has booked.
type RemoteCredit struct {
	User, Currency string
	Amount         hongbao.Amount
}

// askAtOnce is how many packets are collected before the remote is queried for them.
const askAtOnce = 10_000

// readRemote queries the remote for every grant that Redis, ledger or topic has, or that a person decided about. It
// does not find credits without a grant: the remote answers for one packet, and can't list its credits.
func (r *run) readRemote(ctx context.Context) error {
	if r.Remote == nil || r.Remote.Ask == nil {
		return nil
	}
	onlyDecided := r.onlyDecided()
	for _, c := range r.sorted() {
		var known []hongbao.Grant
		var errs []error
		ask := func() {
			if len(errs) == 0 {
				errs = append(errs, r.askFor(ctx, c, known))
			}
			known = known[:0]
		}
		add := func(g hongbao.Grant) {
			if known = append(known, g); len(known) == askAtOnce {
				ask()
			}
		}
		for _, g := range onlyDecided[c.id] {
			add(g)
		}
		c.facts.each(func(packet int64, f *fact) {
			if f.from&whoGotIt != 0 && f.seq <= r.seqOn(c, f.shard) {
				add(hongbao.Grant{Campaign: c.id, Packet: packet, Shard: int(f.shard), Seq: f.seq})
			}
		})
		ask()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) askFor(ctx context.Context, c *campaign, grants []hongbao.Grant) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.Remote.Concurrency)
	for i := range grants {
		g := &grants[i]
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			has, found, err := r.Remote.Ask(ctx, g.Campaign, g.Packet)
			if err != nil {
				return err
			}
			if found {
				g.User, g.Amount = has.User, has.Amount
				r.observe(inRemote, g)
				r.judgeCurrency(c, g, &has)
				return nil
			}
			return r.worthless(ctx, c, g.Packet)
		})
	}
	return group.Wait()
}

func (r *run) judgeCurrency(c *campaign, g *hongbao.Grant, has *RemoteCredit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.ledger != nil && c.ledger.Currency != has.Currency {
		r.found(model.Difference{Kind: Different, Where: sourceNames[inRemote], Campaign: c.id, Packet: g.Packet,
			Event:  g.EventID(),
			Detail: fmt.Sprintf("the remote has it in %q, the campaign is in %q", has.Currency, c.ledger.Currency)})
	}
}

// onlyDecided returns, by campaign, the grants for which a person's decision is the only remaining evidence.
func (r *run) onlyDecided() map[string][]hongbao.Grant {
	left := map[string][]hongbao.Grant{}
	for _, s := range r.shards {
		for seq, d := range s.decided {
			c := r.campaigns[d.campaign]
			if c == nil || c.sealed {
				continue
			}
			if f := c.facts.find(d.packet); f == nil || f.from&whoGotIt == 0 {
				left[d.campaign] = append(left[d.campaign],
					hongbao.Grant{Campaign: d.campaign, Packet: d.packet, Shard: s.Index(), Seq: seq,
						Time: d.time})
			}
		}
	}
	return left
}

// judgeRemote checks that the remote has each grant of the ledger: the ledger records a grant only after the remote has
// credited it. The remote must not have credited a grant in quarantine that a person resolved otherwise.
func (r *run) judgeRemote(c *campaign, packet int64, f *fact) {
	if r.Remote == nil || r.Remote.Ask == nil {
		return
	}
	why, resolved := r.decisions[f.digest]
	switch {
	case f.has(inLedger) && !f.has(inRemote|hasNoValue):
		r.foundPacket(c, packet, f, model.Difference{Kind: Lost, Where: sourceNames[inRemote],
			Detail: "the ledger has recorded it as credited by the remote, but the remote does not have it"})
	case resolved && f.has(inQuarantine) && f.has(inRemote) && !f.has(inLedger):
		r.paidRemotely(c, packet, f, why)
	}
}

func (r *run) paidRemotely(c *campaign, packet int64, f *fact, why string) {
	r.foundPacket(c, packet, f, model.Difference{Kind: RemotePaid, Where: sourceNames[inRemote], Detail: why})
}

// worthless marks a packet without a value. The remote need not have it: no worker requests a credit of zero.
func (r *run) worthless(ctx context.Context, c *campaign, packet int64) error {
	if r.Plan == nil || c.unplanned {
		return nil
	}
	amount, ok, err := r.Plan.Amount(ctx, c.id, packet)
	if err == nil && ok && amount == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.facts.at(packet).from |= hasNoValue
	}
	return err
}
