package ledger

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// CreditByReference gives a client's credit; false if he has none under the reference.
func (l *Ledger) CreditByReference(ctx context.Context, client, reference string) (payment.Credit, bool, error) {
	return question[payment.Credit]{"read credit " + reference,
		`SELECT ` + creditColumns + ` FROM credit WHERE client = $1 AND reference = $2`, []any{client, reference},
		func(s scan) (payment.Credit, error) { return scanCredit(s) }}.one(ctx, l)
}

// AccountBalances gives what the credits of an account add up to, by currency; none if it was never credited.
func (l *Ledger) AccountBalances(ctx context.Context, account string) ([]payment.AccountBalance, error) {
	return question[payment.AccountBalance]{"read the balances of account " + account,
		`SELECT currency, balance, credits FROM credit_account WHERE id = $1 ORDER BY currency`, []any{account},
		func(s scan) (b payment.AccountBalance, err error) {
			err = s(&b.Currency, &b.Balance, &b.Credits)
			return b, err
		}}.all(ctx, l)
}

// Statement gives a page of an account's credits in one currency, in the order in which they were booked. Who reads
// on behind the last line of a page misses none: a line is numbered under the lock of its account. MariaDB may show
// a line for a moment before the one in front of it, so the page ends where a number is missing.
func (l *Ledger) Statement(ctx context.Context, page payment.StatementPage) ([]payment.StatementLine, error) {
	list, err := question[payment.StatementLine]{"read the statement of account " + page.Account,
		`SELECT ` + creditColumns + `, line_no FROM credit
			WHERE account = $1 AND currency = $2 AND line_no > $3 ORDER BY line_no LIMIT $4`,
		[]any{page.Account, page.Currency, page.After, int64(page.Limit)},
		func(s scan) (line payment.StatementLine, err error) {
			line.Credit, err = scanCredit(s, &line.Number)
			return line, err
		}}.all(ctx, l)
	for i := range list {
		if list[i].Number != page.After+int64(i)+1 {
			return list[:i], err
		}
	}
	return list, err
}

// Credits gives a page of a client's credits in the order of their references. Pages that are read one behind the
// other have all that was booked before the first of them was read; of what is booked meanwhile they may have some.
func (l *Ledger) Credits(ctx context.Context, page payment.CreditPage) ([]payment.Credit, error) {
	return question[payment.Credit]{"read the credits of client " + page.Client,
		`SELECT ` + creditColumns + ` FROM credit WHERE client = $1 AND reference > $2 ORDER BY reference LIMIT $3`,
		[]any{page.Client, page.After, int64(page.Limit)},
		func(s scan) (payment.Credit, error) { return scanCredit(s) }}.all(ctx, l)
}
