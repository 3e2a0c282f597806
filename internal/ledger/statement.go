package ledger

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/payment"
)

// CreditByReference gives a client's credit; false if he has none under the reference.
func (l *Ledger) CreditByReference(ctx context.Context, client, reference string) (c payment.Credit, found bool,
	err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		found = false
		return t.query(ctx, `SELECT `+creditColumns+` FROM credit WHERE client = $1 AND reference = $2`, []any{client,
			reference},
			func(s scan) (err error) {
				found = true
				c, err = scanCredit(s)
				return err
			})
	})
	if err != nil {
		return payment.Credit{}, false, fmt.Errorf("read credit %s: %w", reference, err)
	}
	return c, found, nil
}

// AccountBalances gives what the credits of an account add up to, by currency; none if it was never credited.
func (l *Ledger) AccountBalances(ctx context.Context, account string) ([]payment.AccountBalance, error) {
	var list []payment.AccountBalance
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT currency, balance, credits FROM credit_account WHERE id = $1 ORDER BY currency`,
			[]any{account},
			func(s scan) error {
				var b payment.AccountBalance
				err := s(&b.Currency, &b.Balance, &b.Credits)
				list = append(list, b)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read the balances of account %s: %w", account, err)
	}
	return list, nil
}

// Statement gives a page of an account's credits in one currency, in the order in which they were booked. Who reads
// on behind the last line that he has read misses none: a line is numbered under the lock of its account, so it is
// there before those behind it.
func (l *Ledger) Statement(ctx context.Context, page payment.StatementPage) ([]payment.StatementLine, error) {
	var list []payment.StatementLine
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT `+creditColumns+`, line_no FROM credit
			WHERE account = $1 AND currency = $2 AND line_no > $3 ORDER BY line_no LIMIT $4`,
			[]any{page.Account, page.Currency, page.After, int64(page.Limit)}, func(s scan) (err error) {
				var line payment.StatementLine
				line.Credit, err = scanCredit(s, &line.Number)
				list = append(list, line)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read the statement of account %s: %w", page.Account, err)
	}
	return list, nil
}

// Credits gives a page of a client's credits in the order of their references. Pages that are read one behind the
// other have all that was booked before the first of them was read; of what is booked meanwhile they may have some.
func (l *Ledger) Credits(ctx context.Context, page payment.CreditPage) ([]payment.Credit, error) {
	var list []payment.Credit
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT `+creditColumns+` FROM credit WHERE client = $1 AND reference > $2 ORDER BY reference LIMIT $3`,
			[]any{page.Client, page.After, int64(page.Limit)}, func(s scan) error {
				c, err := scanCredit(s)
				list = append(list, c)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read the credits of client %s: %w", page.Client, err)
	}
	return list, nil
}
