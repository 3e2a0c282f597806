package payments

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Funds returns the funds of all clients.
func (a Payments) Funds(ctx context.Context) ([]model.Fund, error) {
	if err := a.app.OpenBook(ctx); err != nil {
		return nil, err
	}
	return a.app.Ledger().Funds(ctx)
}

// Fund adds money to the fund that pays a client's credits, once for each id.
func (a Payments) Fund(ctx context.Context, f model.Funding) (model.Fund, error) {
	if err := a.app.OpenBook(ctx); err != nil {
		return model.Fund{}, err
	}
	var fund model.Fund
	err := a.app.InLedger(ctx, app.About(ctx, access.FundClient, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"client": f.Client, "id": f.ID, "amount": f.Amount, "currency": f.Currency, "by": f.By,
			"why": f.Why}
		fund, err = a.app.Ledger().Fund(ctx, f)
		return err
	})
	return fund, err
}

// CheckBook returns the differences between the recorded credits and the balances and funds.
func (a Payments) CheckBook(ctx context.Context) ([]books.Difference, error) {
	if err := a.app.OpenBook(ctx); err != nil {
		return nil, err
	}
	return a.app.Books().CheckCredits(ctx)
}
