package ledger

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// CreditByReference returns a client's credit; false if the client has none with the reference. The client takes the
// answer as a confirmation.
func (l *Ledger) CreditByReference(ctx context.Context, client, reference string) (c payment.Credit, found bool,
	err error) {
	err = l.tables.ReadDurably(ctx, func(ctx context.Context, t db.Txn) (err error) {
		c, found, err = tables.Query[payment.Credit]{
			SQL:  `SELECT ` + creditColumns + ` FROM credit WHERE client = $1 AND reference = $2`,
			Args: []any{client, reference}, Row: func(s db.Scan) (payment.Credit, error) { return scanCredit(s) }}.First(ctx, t)
		return err
	})
	if err != nil {
		return payment.Credit{}, false, fmt.Errorf("read credit %s: %w", reference, err)
	}
	return c, found, nil
}

// AccountBalances returns the sum of an account's credits in each currency; none if the account was never credited.
func (l *Ledger) AccountBalances(ctx context.Context, account string) ([]payment.AccountBalance, error) {
	return tables.Ask("read the balances of account "+account,
		`SELECT currency, balance, credits FROM credit_account WHERE id = $1 ORDER BY currency`, []any{account},
		func(s db.Scan) (b payment.AccountBalance, err error) {
			err = s(&b.Currency, &b.Balance, &b.Credits)
			return b, err
		}).All(ctx, l.tables)
}

// Statement returns a page of an account's credits in one currency, in the order in which they were booked. A reader
// that continues after the last line of a page misses no line, because lines are numbered while their account is
// locked. MariaDB may briefly show a line but not the previous one, so a page ends before a missing number.
func (l *Ledger) Statement(ctx context.Context, page payment.StatementPage) ([]payment.StatementLine, error) {
	list, err := tables.Ask("read the statement of account "+page.Account,
		`SELECT `+creditColumns+`, line_no FROM credit
			WHERE account = $1 AND currency = $2 AND line_no > $3 ORDER BY line_no LIMIT $4`,
		[]any{page.Account, page.Currency, page.After, int64(page.Limit)},
		func(s db.Scan) (line payment.StatementLine, err error) {
			line.Credit, err = scanCredit(s, &line.Number)
			return line, err
		}).All(ctx, l.tables)
	for i := range list {
		if list[i].Number != page.After+int64(i)+1 {
			return list[:i], err
		}
	}
	return list, err
}

// Credits returns a page of a client's credits, sorted by reference. Successive pages contain all credits that were
// booked before the first page was read, and perhaps some later ones.
func (l *Ledger) Credits(ctx context.Context, page payment.CreditPage) ([]payment.Credit, error) {
	return tables.Ask("read the credits of client "+page.Client,
		`SELECT `+creditColumns+` FROM credit WHERE client = $1 AND reference > $2 ORDER BY reference LIMIT $3`,
		[]any{page.Client, page.After, int64(page.Limit)},
		func(s db.Scan) (payment.Credit, error) { return scanCredit(s) }).All(ctx, l.tables)
}
