package settlement

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// MaxCredits is how many credits one call may book.
const MaxCredits = 1_000

// Credit books credits that another system asks for, in one transaction, and answers each at its place. A credit whose
// key was used before for the same reference, account, currency and amount is answered as it was then and moves nothing;
// any other credit under a used key or reference is a Conflict. Keys are kept for ever. The error of the call concerns all
// of them: repeat it with the same keys.
func (l *Ledger) Credit(ctx context.Context, credits []hongbao.Credit) ([]hongbao.Credited, error) {
	if len(credits) > MaxCredits {
		return nil, hongbao.Errorf(hongbao.Permanent, "book %d credits: at most %d go together", len(credits), MaxCredits)
	}
	answers := make([]hongbao.Credited, len(credits))
	var valid []*hongbao.Credited
	for i := range credits {
		answers[i] = hongbao.Credited{Credit: credits[i], Err: checkCredit(&credits[i])}
		if answers[i].Err == nil {
			valid = append(valid, &answers[i])
		}
	}
	// Every caller takes its locks in the same order.
	slices.SortStableFunc(valid, func(a, b *hongbao.Credited) int { return cmp.Compare(a.Credit.Key, b.Credit.Key) })
	err := l.bookAll(ctx, valid)
	if !errors.Is(err, errOverdraw) {
		return answers, err
	}
	for _, a := range valid { // one of them is too much for its account: they no longer share a transaction
		err := l.bookAll(ctx, []*hongbao.Credited{a})
		if errors.Is(err, errOverdraw) {
			a.Err = hongbao.Errorf(hongbao.Permanent, "the balance of account %s would be above %d", a.Credit.Account, hongbao.MaxAmount)
		} else if err != nil { // it says of its own credit that nothing was booked; of those before it that is not true
			return nil, hongbao.Outagef(hongbao.Unknown, "book %d credits one by one, of which some may be booked: %w", len(valid), err)
		}
	}
	return answers, nil
}

func checkCredit(c *hongbao.Credit) error {
	var errs []error
	for _, id := range []struct{ name, value string }{{"key", c.Key}, {"reference", c.Reference}, {"account", c.Account}} {
		if err := hongbao.CheckID(id.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id.name, err))
		}
	}
	if err := hongbao.CheckCurrency(c.Currency); err != nil {
		errs = append(errs, err)
	}
	if c.Amount < 1 || c.Amount > hongbao.MaxAmount {
		errs = append(errs, fmt.Errorf("the amount is %d: want 1 to %d", c.Amount, hongbao.MaxAmount))
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.Permanent, "the credit can't be booked: %w", errors.Join(errs...))
}

// payloadHash is the sum of what a key stands for. No part can hold a line break.
func payloadHash(c *hongbao.Credit) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", c.Reference, c.Account, c.Currency, c.Amount))
	return hex.EncodeToString(sum[:])
}

const creditColumns = `reference, idempotency_key, account, currency, amount, created_at`

// bookAll books valid credits, sorted by key, in one transaction.
func (l *Ledger) bookAll(ctx context.Context, credits []*hongbao.Credited) error {
	if len(credits) == 0 {
		return nil
	}
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		inserted := make([]int64, len(credits))
		inserts := make([]stmt, len(credits))
		for i, a := range credits {
			c := &a.Credit
			inserts[i] = stmt{
				sql:     `INSERT INTO credit (` + creditColumns + `, payload_hash) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
				args:    []any{c.Reference, c.Key, c.Account, c.Currency, int64(c.Amount), now.UnixMilli(), payloadHash(c)},
				changed: &inserted[i],
			}
		}
		if err := t.run(ctx, inserts...); err != nil {
			return nil, err
		}
		var fresh []*hongbao.Credited
		for i, a := range credits {
			if a.Err, a.Repeated = nil, inserted[i] == 0; !a.Repeated {
				a.Credit.Created = now
				fresh = append(fresh, a)
			} else if err := recall(ctx, t, a); err != nil {
				return nil, err
			}
		}
		return addCredits(fresh)
	})
	if err != nil {
		return fmt.Errorf("book %d credits: %w", len(credits), err)
	}
	return nil
}

// recall answers a credit that was not inserted from what stands in its way.
func recall(ctx context.Context, t txn, a *hongbao.Credited) error {
	found := false
	err := t.query(ctx, `SELECT `+creditColumns+`, payload_hash FROM credit WHERE idempotency_key = $1 OR reference = $2`,
		[]any{a.Credit.Key, a.Credit.Reference}, func(s scan) error {
			found = true
			var hash string
			has, err := scanCredit(s, &hash)
			switch {
			case has.Key == a.Credit.Key && hash == payloadHash(&a.Credit):
				a.Credit = has
			case has.Key == a.Credit.Key:
				a.Err = hongbao.Errorf(hongbao.Conflict, "%w", hongbao.ErrKeyReused)
			case a.Err == nil:
				a.Err = hongbao.Errorf(hongbao.Conflict, "%w", hongbao.ErrReferenceReused)
			}
			return err
		})
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.Broken, "credit %s was neither inserted nor there: was a row deleted by hand?", a.Credit.Reference)
	}
	return err
}

func scanCredit(s scan, more ...any) (hongbao.Credit, error) {
	var c hongbao.Credit
	var at int64
	err := s(append([]any{&c.Reference, &c.Key, &c.Account, &c.Currency, &c.Amount, &at}, more...)...)
	c.Created = time.UnixMilli(at).UTC()
	return c, err
}

// addCredits gives the statements that move the balances, one a touched account, sorted.
func addCredits(fresh []*hongbao.Credited) ([]stmt, error) {
	type sum struct {
		account, currency string
		amount            hongbao.Amount
		credits           int64
	}
	sums := make([]sum, len(fresh))
	for i, a := range fresh {
		sums[i] = sum{a.Credit.Account, a.Credit.Currency, a.Credit.Amount, 1}
	}
	slices.SortFunc(sums, func(a, b sum) int {
		return cmp.Or(strings.Compare(a.account, b.account), strings.Compare(a.currency, b.currency))
	})
	var stmts []stmt
	for i := 0; i < len(sums); {
		s := sums[i]
		for i++; i < len(sums) && sums[i].account == s.account && sums[i].currency == s.currency; i++ {
			if s.amount += sums[i].amount; s.amount > hongbao.MaxAmount {
				return nil, hongbao.Errorf(hongbao.Permanent, "%w: one account gets more than %d", errOverdraw, hongbao.MaxAmount)
			}
			s.credits++
		}
		stmts = append(stmts, stmt{
			sql: `INSERT INTO credit_account (id, currency, balance, credits) VALUES ($1, $2, $3, $4) ON CONFLICT (id, currency)
				DO UPDATE SET balance = credit_account.balance + excluded.balance, credits = credit_account.credits + excluded.credits`,
			args: []any{s.account, s.currency, int64(s.amount), s.credits},
		})
	}
	return stmts, nil
}

// CreditByReference gives a booked credit; false if there is none under the reference.
func (l *Ledger) CreditByReference(ctx context.Context, reference string) (c hongbao.Credit, found bool, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		found = false
		return t.query(ctx, `SELECT `+creditColumns+` FROM credit WHERE reference = $1`, []any{reference}, func(s scan) (err error) {
			found = true
			c, err = scanCredit(s)
			return err
		})
	})
	if err != nil {
		return hongbao.Credit{}, false, fmt.Errorf("read credit %s: %w", reference, err)
	}
	return c, found, nil
}

// AccountBalances gives what the credits of an account add up to, by currency; none if it was never credited.
func (l *Ledger) AccountBalances(ctx context.Context, account string) ([]hongbao.AccountBalance, error) {
	var list []hongbao.AccountBalance
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT currency, balance, credits FROM credit_account WHERE id = $1 ORDER BY currency`, []any{account},
			func(s scan) error {
				var b hongbao.AccountBalance
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

// Statement gives a page of an account's credits in the order in which they were booked. A transaction that commits late
// may put a credit of the last seconds onto a page that was read before.
func (l *Ledger) Statement(ctx context.Context, page hongbao.StatementPage) ([]hongbao.Credit, error) {
	var list []hongbao.Credit
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT `+creditColumns+` FROM credit
			WHERE account = $1 AND (created_at > $2 OR created_at = $2 AND reference > $3) ORDER BY created_at, reference LIMIT $4`,
			[]any{page.Account, max(page.After.Created.UnixMilli(), 0), page.After.Reference, int64(page.Limit)}, func(s scan) error {
				c, err := scanCredit(s)
				list = append(list, c)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read the statement of account %s: %w", page.Account, err)
	}
	return list, nil
}

// CheckCredits compares every account's balance with its credits, on one snapshot, and names every difference; a ledger in
// which nothing was credited has none. It reads every credit within Config.Timeout.
func (l *Ledger) CheckCredits(ctx context.Context) ([]Difference, error) {
	var list []Difference
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = nil
		return t.query(ctx, `SELECT id, currency, CAST(SUM(balance) AS bigint), CAST(SUM(credits) AS bigint), CAST(SUM(amount) AS bigint),
			CAST(SUM(n) AS bigint) FROM (
				SELECT id, currency, balance, credits, 0 AS amount, 0 AS n FROM credit_account
				UNION ALL SELECT account, currency, 0, 0, amount, 1 FROM credit) AS b
			GROUP BY id, currency HAVING SUM(balance) <> SUM(amount) OR SUM(credits) <> SUM(n) ORDER BY id, currency`, nil, func(s scan) error {
			var id, currency string
			var balance, credits, amount, n int64
			err := s(&id, &currency, &balance, &credits, &amount, &n)
			where := "account " + id + ", " + currency
			if balance != amount {
				list = append(list, Difference{Where: where, What: "sum of the credits = balance", Want: amount, Got: balance})
			}
			if credits != n {
				list = append(list, Difference{Where: where, What: "number of credits", Want: n, Got: credits})
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("check that balances are the sums of their credits: %w", err)
	}
	return list, nil
}
