package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Resolution is an operator's decision about a grant in quarantine.
type Resolution struct {
	ID int64
	// Pay means that the grant's amount is paid to its user from the reserve; otherwise the grant is void.
	Pay bool
	stream.Decision
}

func (d *Resolution) resolution() string {
	if d.Pay {
		return "paid from the reserve: " + d.Why
	}
	return "void: " + d.Why
}

// Reasons why a grant in quarantine can't be decided. Errors that wrap them are Permanent, except ErrDecided, which is
// a Conflict.
var (
	ErrNotInQuarantine = errors.New("not_in_quarantine")
	ErrDecided         = errors.New("decided_otherwise_before")
	ErrNotPayable      = errors.New("not_payable_from_the_reserve")
)

func (d *Resolution) check() error {
	err := d.Decision.Check()
	if d.ID < 1 {
		err = errors.Join(fmt.Errorf("quarantine %d: numbers begin at 1", d.ID), err)
	}
	if err == nil {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "decide quarantine %d: %w", d.ID, err)
}

// Decide records a decision. To pay, it moves the amount from the reserve's account to the user's in the same
// transaction. It is idempotent: a repeated or concurrent call with the same decision moves no money and returns the
// same result.
//
// A grant can be paid only if it can never be settled any more; otherwise it could be paid twice. If the ledger did not
// have the grant's campaign, create the campaign and replay the grant instead. A grant that the ledger has settled
// meanwhile is already paid. Decide never pays a user twice for a packet, and never more than the plan has for it. It
// pays nothing for an archived campaign, because the ledger no longer has its grants. A decision that the grant is void
// does not need the plan.
func (l *Ledger) Decide(ctx context.Context, d Resolution, plan PlanSource) (Quarantined, error) {
	if err := d.check(); err != nil {
		return Quarantined{}, err
	}
	most, err := l.mostPayable(ctx, &d, plan)
	if err != nil {
		return Quarantined{}, fmt.Errorf("decide quarantine %d: %w", d.ID, err)
	}
	var q Quarantined
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		now := time.Now().UnixMilli()
		var changed int64
		// The update comes first, because it locks the row: a concurrent decision waits, and then sees the row as decided.
		err := t.run(ctx, stmt{
			sql:  `UPDATE quarantine SET resolved_at = $2, resolved_by = $3, resolution = $4 WHERE id = $1 AND resolved_at = 0`,
			args: []any{d.ID, now, d.By, d.resolution()}, changed: &changed,
		})
		if err != nil {
			return nil, err
		}
		var found bool
		if q, found, err = quarantineByID(d.ID).first(ctx, t); err != nil {
			return nil, err
		}
		switch {
		case !found:
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: no such grant; `hongbao quarantine list` "+
				"lists the grants that wait", ErrNotInQuarantine)
		case changed == 0 && q.Resolution == d.resolution() && q.ResolvedBy == d.By:
			return nil, nil
		case changed == 0:
			return nil, hongbao.Errorf(hongbao.ClassConflict, "%w: %s decided at %s: %s", ErrDecided, q.ResolvedBy,
				q.Resolved.Format(time.RFC3339), q.Resolution)
		case !d.Pay:
			return nil, nil
		}
		return l.payFromReserve(ctx, t, &q, most)
	})
	if err != nil {
		return Quarantined{}, fmt.Errorf("decide quarantine %d: %w", d.ID, err)
	}
	return q, nil
}

// mostPayable returns the most that a decision may pay: the plan's amount for the grant's packet. It returns -1 if that
// amount is unknown or not needed.
func (l *Ledger) mostPayable(ctx context.Context, d *Resolution, plan PlanSource) (hongbao.Amount, error) {
	if !d.Pay || plan == nil {
		return -1, nil
	}
	q, found, err := l.Quarantined(ctx, d.ID)
	if err != nil || !found {
		return -1, err // Decide returns the error for a missing row
	}
	k, found, err := l.lookUp(ctx, q.Grant.Campaign, q.Grant.Packet)
	if err != nil || !found || q.Grant.Packet < 1 || q.Grant.Packet > k.packets {
		return -1, err
	}
	amount, found, err := plan.Amount(ctx, q.Grant.Campaign, q.Grant.Packet)
	if err != nil {
		return -1, fmt.Errorf("ask the plan of campaign %s for packet %d: %w", q.Grant.Campaign, q.Grant.Packet, err)
	}
	if !found {
		return -1, nil
	}
	return amount, nil
}

// payable returns the campaign of a grant in quarantine. The error is ErrNotPayable if the reserve must not pay the
// grant.
func (l *Ledger) payable(ctx context.Context, t txn, q *Quarantined, most hongbao.Amount) (StoredCampaign, error) {
	g := &q.Grant
	c, found, err := campaignByID(g.Campaign).first(ctx, t)
	if err != nil {
		return StoredCampaign{}, err
	}
	if !found {
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: the ledger does not have campaign %s, so it knows neither the planned amount nor whose money it is. If another "+
				"copy of the ledger has the campaign, point ledger.dsn to that; if all packets have the same amount, create the "+
				"campaign again from the same file; then `hongbao replay NAME --to balance --missing` pays the grant once. "+
				"Otherwise pay the user yourself, and decide that the grant is void", ErrNotPayable, g.Campaign)
	}
	has, err := l.readGrants(ctx, t, []item{{grant: g}})
	if err != nil {
		return StoredCampaign{}, err
	}
	// The archive is read after the grants: if none is recorded, no grant was deleted before.
	archive, archived, err := archiveOf(g.Campaign).first(ctx, t)
	if err != nil {
		return StoredCampaign{}, err
	}
	s, paid := has[keyOf(g)]
	switch {
	case paid && difference(g, &s.Grant) == "":
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: the ledger has settled this grant meanwhile; decide that it is void", ErrNotPayable)
	case paid && s.User == g.User:
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: its user was paid packet %d already, as event %s; decide that it is void",
			ErrNotPayable, g.Packet, s.EventID())
	case archived:
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: the record of who was paid packet %d is in the file %s (SHA-256 %s), and no longer in the ledger; "+
				"decide that it is void", ErrNotPayable, g.Packet, archive.File, archive.SHA256)
	case !paid && q.Reason == NoCampaign && c.State != StateRefunded:
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: campaign %s is in the ledger now, so the grant may still be settled: run `hongbao replay NAME --to "+
				"balance --missing` first", ErrNotPayable, g.Campaign)
	}
	if g.Amount < 0 || g.Amount > most {
		return StoredCampaign{}, hongbao.Errorf(hongbao.ClassPermanent,
			"%w: its amount is %d, but the plan does not allow that for packet %d; decide that it is void",
			ErrNotPayable, g.Amount, g.Packet)
	}
	return c, nil
}

// payFromReserve returns the statements that pay a grant from the reserve. The transfer's id contains the packet and
// the user. So the user is paid for the packet once, even if several rows in quarantine are decided.
func (l *Ledger) payFromReserve(ctx context.Context, t txn, q *Quarantined, most hongbao.Amount) ([]stmt, error) {
	c, err := l.payable(ctx, t, q, most)
	if err != nil {
		return nil, err
	}
	g := &q.Grant
	currency := c.Spec.Currency
	reserve, user := ReserveAccount(currency), UserAccount(g.User, currency)
	credits, err := l.creditUsers([]credit{{user, currency, g.Amount}})
	if err != nil {
		return nil, err
	}
	account := stmt{sql: l.dialect.insertReserve, args: []any{reserve, currency}}
	debit := stmt{sql: `UPDATE account SET balance = balance - $2 WHERE id = $1`, args: []any{reserve, int64(g.Amount)}}
	id := "quarantine:" + g.Campaign + ":" + strconv.FormatInt(g.Packet, 10) + ":" + g.User
	_, paid, err := rowQuery[string]{sql: `SELECT id FROM transfer WHERE id = $1`, args: []any{id}, row: text}.first(ctx, t)
	if err != nil {
		return nil, err
	}
	if paid {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: its user was paid packet %d from the reserve before; "+
			"decide that it is void",
			ErrNotPayable, g.Packet)
	}
	// If a concurrent decision has paid the user for this packet, the insert fails with errAgain.
	once := stmt{sql: insertTransfer, args: []any{id, "funding", g.Campaign, reserve, user, int64(g.Amount), int64(0),
		int64(0), time.Now().UnixMilli()}}
	return append(slices.Clip(credits), account, debit, once), nil
}

func quarantineByID(id int64) rowQuery[Quarantined] {
	return rowQuery[Quarantined]{fmt.Sprintf("read quarantine %d", id),
		`SELECT ` + quarantineColumns + ` FROM quarantine WHERE id = $1`, []any{id}, scanQuarantined}
}

// Quarantined returns a grant in quarantine, decided or not; false if there is none with that number.
func (l *Ledger) Quarantined(ctx context.Context, id int64) (Quarantined, bool, error) {
	return quarantineByID(id).one(ctx, l)
}

// QuarantineAll is like Quarantine, but includes the decided grants.
func (l *Ledger) QuarantineAll(ctx context.Context, after int64, limit int) ([]Quarantined, error) {
	return l.quarantine(ctx, `id > $1`, after, limit)
}

// EachQuarantined calls fn for each grant in quarantine, decided or not.
func (l *Ledger) EachQuarantined(ctx context.Context, fn func(*Quarantined)) error {
	const limit = 500
	for after := int64(0); ; {
		page, err := l.QuarantineAll(ctx, after, limit)
		if err != nil {
			return err
		}
		for i := range page {
			fn(&page[i])
			after = page[i].ID
		}
		if len(page) < limit {
			return nil
		}
	}
}
