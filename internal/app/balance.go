package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// OpenBook opens the database of `hongbao balance`, which replaces the deployment's ledger. Call OpenBook before any
// method that uses this database. Migrate creates the tables.
func (a *App) OpenBook(ctx context.Context) error {
	l, err := a.reachLedger(ctx)
	if errors.Is(err, ledger.ErrNotInitialized) {
		return hongbao.Errorf(hongbao.ClassBroken,
			"the database of ledger.dsn has no tables of Hongbao: %w; correct ledger.dsn, or create them: `hongbao init` does "+
				"for a deployment, `hongbao balance migrate` for `hongbao balance` alone", ledger.ErrNotInitialized)
	}
	if errors.Is(err, ledger.ErrOldSchema) {
		return fmt.Errorf("%w; if no deployment uses the database, run `hongbao balance migrate`", err)
	}
	if err != nil {
		return err
	}
	a.ledger = l
	a.atEnd(l.Close)
	return nil
}

// Funds returns the funds of all clients.
func (a *App) Funds(ctx context.Context) ([]ledger.Fund, error) {
	if err := a.OpenBook(ctx); err != nil {
		return nil, err
	}
	return a.ledger.Funds(ctx)
}

// Fund adds money to the fund that pays a client's credits, once for each id.
func (a *App) Fund(ctx context.Context, f ledger.Funding) (ledger.Fund, error) {
	if err := a.OpenBook(ctx); err != nil {
		return ledger.Fund{}, err
	}
	var fund ledger.Fund
	err := a.inLedger(ctx, about(ctx, access.FundClient, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"client": f.Client, "id": f.ID, "amount": f.Amount, "currency": f.Currency, "by": f.By,
			"why": f.Why}
		fund, err = a.ledger.Fund(ctx, f)
		return err
	})
	return fund, err
}

// CheckBook returns the differences between the recorded credits and the balances and funds.
func (a *App) CheckBook(ctx context.Context) ([]ledger.Difference, error) {
	if err := a.OpenBook(ctx); err != nil {
		return nil, err
	}
	return a.ledger.CheckCredits(ctx)
}
