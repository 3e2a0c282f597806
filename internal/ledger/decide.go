package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Resolution is an operator's decision about a grant in quarantine.
type Resolution struct {
	ID int64
	// Pay means that the grant's amount is paid to its user from the reserve; otherwise the grant is void.
	Pay bool
	stream.Decision
}

const paidFromReserve = "paid from the reserve: "

func (d *Resolution) resolution() string {
	if d.Pay {
		return paidFromReserve + d.Why
	}
	return "void: " + d.Why
}

// wasPaid reports whether an operator has paid the grant from the reserve.
func wasPaid(q *model.Quarantined) bool { return strings.HasPrefix(q.Resolution, paidFromReserve) }

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
// A grant can be paid only if the settler does not take it, whatever the reason for which it went to quarantine: after a
// top-up or once its campaign exists, the campaign's pool pays it, by a replay. A grant that the ledger has settled
// meanwhile is already paid. A grant whose credit is pending at a remote may be paid. Decide never pays a user twice for
// a packet, and never more than the plan has for it. It pays nothing for an archived campaign, because the ledger no
// longer has its grants. A decision that the grant is void does not need the plan.
func (l *Ledger) Decide(ctx context.Context, d Resolution, plan PlanSource) (q model.Quarantined, err error) {
	if err = d.check(); err != nil {
		return model.Quarantined{}, err
	}
	if q, err = l.decide(ctx, &d, plan); err != nil {
		return model.Quarantined{}, fmt.Errorf("decide quarantine %d: %w", d.ID, err)
	}
	return q, nil
}

func (l *Ledger) decide(ctx context.Context, d *Resolution, plan PlanSource) (q model.Quarantined, err error) {
	q, found, err := l.Quarantined(ctx, d.ID)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "%w: no such grant; `hongbao quarantine list` "+
			"lists the grants that wait", ErrNotInQuarantine)
	}
	if err != nil {
		return q, err
	}
	p := payout{d: d, grant: q.Grant}
	if d.Pay && plan != nil {
		if err = p.ask(ctx, l, plan); err != nil {
			return q, err
		}
	}
	return q, l.tables.Write(ctx, func(ctx context.Context, t db.Txn) (stmts []db.Stmt, err error) {
		if p.campaign, p.found, err = p.lock(ctx, t); err != nil {
			return nil, err
		}
		var changed int64
		err = t.Run(ctx, db.Stmt{
			SQL:  `UPDATE quarantine SET resolved_at = $2, resolved_by = $3, resolution = $4 WHERE id = $1 AND resolved_at = 0`,
			Args: []any{d.ID, time.Now().UnixMilli(), d.By, d.resolution()}, Changed: &changed,
		})
		if err == nil {
			q, _, err = quarantineByID(d.ID).First(ctx, t)
		}
		switch {
		case err != nil:
			return nil, err
		case changed == 0 && q.Resolution == d.resolution() && q.ResolvedBy == d.By:
			return nil, nil
		case changed == 0:
			return nil, hongbao.Errorf(hongbao.ClassConflict, "%w: %s decided at %s: %s", ErrDecided, q.ResolvedBy,
				q.Resolved.Format(time.RFC3339), q.Resolution)
		case !d.Pay:
			return nil, nil
		}
		return p.post(ctx, l, t)
	})
}

func quarantineByID(id int64) tables.Query[model.Quarantined] {
	return tables.Ask(fmt.Sprintf("read quarantine %d", id),
		`SELECT `+quarantineColumns+` FROM quarantine WHERE id = $1`, []any{id}, scanQuarantined)
}

// Quarantined returns a grant in quarantine, decided or not; false if there is none with that number.
func (l *Ledger) Quarantined(ctx context.Context, id int64) (model.Quarantined, bool, error) {
	return quarantineByID(id).One(ctx, l.tables)
}

// QuarantineAll is like Quarantine, but includes the decided grants.
func (l *Ledger) QuarantineAll(ctx context.Context, after int64, limit int) ([]model.Quarantined, error) {
	return l.quarantine(ctx, `id > $1`, after, limit)
}

// EachQuarantined calls fn for each grant in quarantine, decided or not.
func (l *Ledger) EachQuarantined(ctx context.Context, fn func(*model.Quarantined)) error {
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
