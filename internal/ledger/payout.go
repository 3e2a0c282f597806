package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// payout is a payment from the reserve of a grant in quarantine.
type payout struct {
	d     *Resolution
	grant hongbao.Grant
	// If asked is set, known is what was known of the campaign when the plan was asked for the packet's amount.
	known  knownCampaign
	amount hongbao.Amount
	asked  bool
	// campaign is the locked campaign; found is false if the ledger does not have it.
	campaign StoredCampaign
	found    bool
}

// ask asks the plan for the packet's amount.
func (p *payout) ask(ctx context.Context, l *Ledger, plan PlanSource) (err error) {
	g := &p.grant
	p.asked = true
	var found bool
	if p.known, found, err = l.lookUp(ctx, g.Campaign, g.Packet); err != nil || !found {
		return err
	}
	p.amount, err = p.known.ask(ctx, plan, g)
	return err
}

// lock locks the campaign, as every settler does: first the user's account, then the pool, then the campaign. So
// nothing is settled, topped up or refunded until the decision is committed, and no deadlock arises.
func (p *payout) lock(ctx context.Context, t db.Txn) (c StoredCampaign, found bool, err error) {
	if p.d.Pay {
		err = t.Run(ctx, db.Stmt{SQL: `UPDATE account SET balance = balance - 0 WHERE id = $1`,
			Args: []any{tables.UserAccount(p.grant.User, p.known.currency)}})
	}
	if err == nil {
		c, err = lockCampaign(ctx, t, p.grant.Campaign)
	}
	if errors.Is(err, ErrNoCampaign) {
		return c, false, nil
	}
	return c, err == nil, err
}

// check returns an error if the reserve must not pay the grant. It runs after lock.
func (p *payout) check(ctx context.Context, l *Ledger, t db.Txn) error {
	g := &p.grant
	refuse := func(format string, args ...any) error {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: "+format, append([]any{ErrNotPayable}, args...)...)
	}
	if !p.found {
		return refuse("the ledger does not have campaign %s, so it knows neither the planned amount nor whose money it is. If "+
			"another copy of the ledger has the campaign, point ledger.dsn to that; if all packets have the same amount, create "+
			"the campaign again from the same file; then `hongbao replay NAME --to balance --missing` pays the grant once. "+
			"Otherwise pay the user yourself, and decide that the grant is void", g.Campaign)
	}
	has, err := l.recall(ctx, t, []item{{grant: g}})
	if err != nil {
		return err
	}
	// The archive is read after the grants: if none is recorded, no grant was deleted before.
	archive, archived, err := tables.ArchiveOf(g.Campaign).First(ctx, t)
	if err != nil {
		return err
	}
	_, before, err := tables.Query[string]{SQL: `SELECT id FROM transfer WHERE id = $1`, Args: []any{tables.ReserveTransfer(g)},
		Row: tables.Text}.First(ctx, t)
	if err != nil {
		return err
	}
	s, paid := has.paid[keyOf(g)]
	pending, asked := has.pending[keyOf(g)]
	switch {
	case paid && difference(g, &s.Grant) == "":
		return refuse("the ledger has settled this grant meanwhile; decide that it is void")
	case paid && s.User == g.User:
		return refuse("its user was paid packet %d already, as event %s; decide that it is void", g.Packet, s.EventID())
	case before:
		return refuse("its user was paid packet %d from the reserve before; decide that it is void", g.Packet)
	case archived:
		return refuse("the record of who was paid packet %d is in the file %s (SHA-256 %s), and no longer in the ledger; "+
			"decide that it is void", g.Packet, archive.File, archive.SHA256)
	case asked && pending.Grant.User == g.User:
		return hongbao.Errorf(hongbao.ClassTransient, "%w: the remote may have booked the credit for packet %d, event %s: "+
			"the workers resolve it; for a credit that only the remote's owners can resolve see `hongbao dead confirm --help`",
			payment.ErrSettling, g.Packet, pending.Grant.EventID())
	case !p.asked:
		return refuse("the plan is unknown, so it could get more than the planned amount")
	case g.Packet > p.known.packets && g.Packet <= p.campaign.Packets:
		return hongbao.Errorf(hongbao.ClassTransient, "campaign %s was created or topped up meanwhile; run it again",
			g.Campaign)
	}
	it := item{grant: g}
	seen := shardViewOf([]item{it})
	if err := t.Run(ctx, seen.queries()...); err != nil {
		return err
	}
	return p.planAllows(paid || seen.fence(it.event()) > 0, refuse)
}

// planAllows refuses a grant that the settler would take, and a grant that gets more than the plan's amount. settled
// says that the settler takes it in no case: its packet is paid, or a fence leaves it out.
func (p *payout) planAllows(settled bool, refuse func(format string, args ...any) error) error {
	g := &p.grant
	switch reason := p.known.refuses(g, p.amount); {
	case !settled && reason == "" && p.campaign.refuses(g) == "":
		return refuse("it can still be settled from the campaign's own pool. Run `hongbao replay NAME --to balance --missing` "+
			"first: it pays packet %d of campaign %s once", g.Packet, g.Campaign)
	case reason == PacketNotPlanned:
		return refuse("the plan has no packet %d: campaign %s has %d packets in the ledger. If the ledger has lost a top-up, "+
			"order it again, and then run `hongbao replay NAME --to balance --missing`. Otherwise decide that it is void",
			g.Packet, g.Campaign, p.campaign.Packets)
	case g.Amount < 0 || g.Amount > p.amount:
		return refuse("its amount is %d, but the plan does not allow that for packet %d; decide that it is void", g.Amount,
			g.Packet)
	}
	return nil
}

// post returns the statements that pay the grant. The transfer's id contains the packet and the user. So the user is
// paid for the packet once, even if several rows in quarantine are decided.
func (p *payout) post(ctx context.Context, l *Ledger, t db.Txn) ([]db.Stmt, error) {
	if err := p.check(ctx, l, t); err != nil {
		return nil, err
	}
	g, currency := &p.grant, p.campaign.Spec.Currency
	reserve, user := tables.ReserveAccount(currency), tables.UserAccount(g.User, currency)
	credits := l.creditUsers([]credit{{user, currency, g.Amount}})
	account := db.Stmt{SQL: l.tables.Dialect.InsertReserve, Args: []any{reserve, currency}}
	debit := db.Stmt{SQL: moveMoney, Args: []any{reserve, -int64(g.Amount)}}
	transfer := db.Stmt{SQL: insertTransfer, Args: []any{tables.ReserveTransfer(g), "funding", g.Campaign, reserve, user,
		int64(g.Amount), int64(0), int64(0), time.Now().UnixMilli()}}
	return append(slices.Clip(credits), account, debit, transfer), nil
}
