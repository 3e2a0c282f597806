package ledger

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Balance returns the balance of an account, in minor units; false if the ledger has no such account.
func (l *Ledger) Balance(ctx context.Context, account string) (hongbao.Amount, bool, error) {
	balance, found, err := tables.Ask("read the balance of account "+account,
		`SELECT balance FROM account WHERE id = $1`, []any{account}, tables.Number).One(ctx, l.tables)
	return hongbao.Amount(balance), found, err
}
