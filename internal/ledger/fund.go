package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

func checkFunding(f *model.Funding) error {
	var errs []error
	for _, id := range []struct{ name, value string }{{"client", f.Client}, {"id", f.ID}} {
		if err := hongbao.CheckID(id.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id.name, err))
		}
	}
	if err := hongbao.CheckCurrency(f.Currency); err != nil {
		errs = append(errs, err)
	}
	if f.Amount < 1 || f.Amount > hongbao.MaxAmount {
		errs = append(errs, fmt.Errorf("the amount is %d: want 1 to %d", f.Amount, hongbao.MaxAmount))
	}
	if err := f.Decision.Check(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "fund client %.140q: %w", f.Client, errors.Join(errs...))
}

// Fund puts money into a client's fund, once for each ID, and returns the fund's new state. A different funding with a
// used ID is a Conflict.
func (l *Ledger) Fund(ctx context.Context, f model.Funding) (model.Fund, error) {
	if err := checkFunding(&f); err != nil {
		return model.Fund{}, err
	}
	fund := model.Fund{Client: f.Client, Currency: f.Currency}
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		found, err := isFunded(ctx, t, &f)
		if err == nil && !found {
			// If a concurrent call has inserted the funding, this fails with db.ErrAgain.
			err = t.Run(ctx, db.Stmt{
				SQL: `INSERT INTO credit_funding (client, id, currency, amount, decided_by, why, created_at)
					VALUES ($1, $2, $3, $4, $5, $6, $7)`,
				Args: []any{f.Client, f.ID, f.Currency, int64(f.Amount), f.By, f.Why, time.Now().UnixMilli()},
			}, db.Stmt{SQL: l.tables.Dialect.AddToFund, Args: []any{f.Client, f.Currency, int64(f.Amount)}})
		}
		if err != nil {
			return nil, err
		}
		return nil, t.Query(ctx, `SELECT funded, credited, credits FROM credit_fund WHERE client = $1 AND currency = $2`,
			[]any{f.Client, f.Currency}, func(s db.Scan) error { return s(&fund.Funded, &fund.Credited, &fund.Credits) })
	})
	if errors.Is(err, db.ErrOverdraw) {
		err = hongbao.Errorf(hongbao.ClassPermanent, "the fund would be above %d", hongbao.MaxAmount)
	}
	if err != nil {
		return model.Fund{}, fmt.Errorf("fund client %s: %w", f.Client, err)
	}
	return fund, nil
}

// isFunded reports whether the ledger has the funding. A different funding with the same ID is a Conflict.
func isFunded(ctx context.Context, t db.Txn, f *model.Funding) (found bool, err error) {
	has := model.Funding{Client: f.Client, ID: f.ID, Decision: f.Decision}
	err = t.Query(ctx, `SELECT currency, amount FROM credit_funding WHERE client = $1 AND id = $2`,
		[]any{f.Client, f.ID}, func(s db.Scan) error {
			found = true
			return s(&has.Currency, &has.Amount)
		})
	if err == nil && found && has != *f {
		err = hongbao.Errorf(hongbao.ClassConflict, "id %s belongs to another funding, of %d minor units of %s: a new "+
			"funding needs a new id",
			f.ID, has.Amount, has.Currency)
	}
	return found, err
}

// Funds returns the funds of all clients, sorted.
func (l *Ledger) Funds(ctx context.Context) ([]model.Fund, error) {
	return tables.Ask("read the funds of the clients",
		`SELECT client, currency, funded, credited, credits FROM credit_fund ORDER BY client, currency`, nil,
		func(s db.Scan) (f model.Fund, err error) {
			err = s(&f.Client, &f.Currency, &f.Funded, &f.Credited, &f.Credits)
			return f, err
		}).All(ctx, l.tables)
}
