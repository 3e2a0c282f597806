package ledger

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
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// MaxCredits is how many credits one call may book.
const MaxCredits = 1_000

// Credit books credits that clients request, in one transaction, and returns each result at its credit's index. Each
// credit moves its amount from its client's fund to its account. A credit is a repeat if its client used the key before
// for the same reference, account, currency and amount: it gets the first result and moves no money. Any other credit
// with a used key or reference is a Conflict. Keys are kept permanently. If the call itself returns an error, retry all
// credits with the same keys.
func (l *Ledger) Credit(ctx context.Context, credits []payment.Credit) ([]payment.Credited, error) {
	if len(credits) > MaxCredits {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "book %d credits: a call may have at most %d", len(credits),
			MaxCredits)
	}
	answers := make([]payment.Credited, len(credits))
	var valid []*payment.Credited
	for i := range credits {
		answers[i] = payment.Credited{Credit: credits[i], Err: checkCredit(&credits[i])}
		if answers[i].Err == nil {
			valid = append(valid, &answers[i])
		}
	}
	// All transactions lock in the same order, so they don't deadlock.
	slices.SortStableFunc(valid, func(a, b *payment.Credited) int {
		return cmp.Or(strings.Compare(a.Credit.Client, b.Credit.Client), strings.Compare(a.Credit.Key, b.Credit.Key))
	})
	err := l.bookAll(ctx, valid)
	if !refused(err) {
		return answers, err
	}
	return answers, l.bookEach(ctx, valid)
}

// refused reports whether a transaction failed because an account or a fund can't take one of its credits.
func refused(err error) bool {
	return errors.Is(err, db.ErrOverdraw) || errors.Is(err, payment.ErrFundExhausted)
}

// bookEach books credits in a transaction each, after one of them was too much for its account or its fund.
func (l *Ledger) bookEach(ctx context.Context, credits []*payment.Credited) error {
	short := map[creditSide]hongbao.Amount{} // the last amount that a fund did not cover
	for _, a := range credits {
		c := &a.Credit
		least, known := short[fundOf(c)]
		var err error
		if known && c.Amount >= least {
			err = l.bookedBefore(ctx, a)
		} else {
			err = l.bookAll(ctx, []*payment.Credited{a})
		}
		switch {
		case errors.Is(err, payment.ErrFundExhausted):
			short[fundOf(c)], a.Err = c.Amount, exhausted(c)
		case errors.Is(err, db.ErrOverdraw):
			a.Err = hongbao.Errorf(hongbao.ClassPermanent, "the balance of account %s would be above %d", c.Account,
				hongbao.MaxAmount)
		case err != nil: // err is about this credit; earlier credits of the call may be booked
			return hongbao.Outagef(hongbao.ClassUnknown, "book %d credits one by one, of which some may be booked: %w",
				len(credits), err)
		}
	}
	return nil
}

// bookedBefore handles a credit that its fund does not cover: a repeat still gets its result, and a used key or
// reference is still a Conflict.
func (l *Ledger) bookedBefore(ctx context.Context, a *payment.Credited) error {
	return l.tables.ReadDurably(ctx, func(ctx context.Context, t db.Txn) error {
		a.Err, a.Repeated = nil, false
		if err := recall(ctx, t, a); err != nil || a.Repeated {
			return err
		}
		return exhausted(&a.Credit)
	})
}

func exhausted(c *payment.Credit) error {
	return hongbao.Errorf(hongbao.ClassTransient, "%w: client %s, currency %s; `hongbao balance fund` fills it",
		payment.ErrFundExhausted, c.Client, c.Currency)
}

func checkCredit(c *payment.Credit) error {
	var errs []error
	for _, id := range []struct{ name, value string }{{"client", c.Client}, {"key", c.Key}, {"reference", c.Reference},
		{"account", c.Account}} {
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
	return hongbao.Errorf(hongbao.ClassPermanent, "the credit can't be booked: %w", errors.Join(errs...))
}

// payloadHash returns the hash of the fields that a repeat must not change. The separator is unambiguous, because no
// field can contain a line break.
func payloadHash(c *payment.Credit) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", c.Reference, c.Account, c.Currency, c.Amount))
	return hex.EncodeToString(sum[:])
}

const creditColumns = `client, reference, idempotency_key, account, currency, amount, created_at` //nolint:gosec // names of columns

// bookAll books valid credits, sorted by key, in one transaction.
func (l *Ledger) bookAll(ctx context.Context, credits []*payment.Credited) error {
	if len(credits) == 0 {
		return nil
	}
	insert := insertCredits
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		for _, a := range credits {
			a.Err, a.Repeated, a.Credit.Created = nil, false, now
		}
		fresh, err := insert(ctx, t, credits)
		insert = insertUnknown
		if err != nil {
			return nil, err
		}
		return nil, l.postCredits(ctx, t, fresh)
	})
	if err != nil {
		return fmt.Errorf("book %d credits: %w", len(credits), err)
	}
	return nil
}

// insertCredits assumes that all credits are new. If one exists, it fails with db.ErrAgain.
func insertCredits(ctx context.Context, t db.Txn, credits []*payment.Credited) (fresh []*payment.Credited, err error) {
	inserts := make([]db.Stmt, len(credits))
	for i, a := range credits {
		c := &a.Credit
		inserts[i] = db.Stmt{
			SQL: `INSERT INTO credit (` + creditColumns + `, payload_hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			Args: []any{c.Client, c.Reference, c.Key, c.Account, c.Currency, int64(c.Amount), c.Created.UnixMilli(),
				payloadHash(c)},
		}
	}
	return credits, t.Run(ctx, inserts...)
}

// insertUnknown inserts the credits that do not exist, and sets the results of the others. It inserts one by one, since
// a call may contain a credit twice.
func insertUnknown(ctx context.Context, t db.Txn, credits []*payment.Credited) (fresh []*payment.Credited, err error) {
	for i, a := range credits {
		err := recall(ctx, t, a)
		if err == nil && a.Err == nil && !a.Repeated {
			fresh = append(fresh, a)
			_, err = insertCredits(ctx, t, credits[i:i+1])
		}
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// recall looks for a stored credit with the same key or reference, and sets the result from it.
func recall(ctx context.Context, t db.Txn, a *payment.Credited) error {
	return t.Query(ctx, `SELECT `+creditColumns+`, payload_hash FROM credit
			WHERE client = $1 AND idempotency_key = $2 OR client = $1 AND reference = $3`,
		[]any{a.Credit.Client, a.Credit.Key, a.Credit.Reference}, func(s db.Scan) error {
			a.Repeated = true
			var hash string
			has, err := scanCredit(s, &hash)
			switch {
			case has.Key == a.Credit.Key && hash == payloadHash(&a.Credit):
				a.Credit = has
			case has.Key == a.Credit.Key:
				a.Err = hongbao.Errorf(hongbao.ClassConflict, "%w", payment.ErrKeyReused)
			case a.Err == nil:
				a.Err = hongbao.Errorf(hongbao.ClassConflict, "%w", payment.ErrReferenceReused)
			}
			return err
		})
}

func scanCredit(s db.Scan, more ...any) (payment.Credit, error) {
	var c payment.Credit
	var at int64
	err := s(append([]any{&c.Client, &c.Reference, &c.Key, &c.Account, &c.Currency, &c.Amount, &at}, more...)...)
	c.Created = time.UnixMilli(at).UTC()
	return c, err
}

// postCredits moves the money of newly inserted credits. It updates the accounts first; the lock on an account's row
// makes the credits' line numbers consecutive. It debits the funds last, because all transactions of a client compete
// for the fund's row.
func (l *Ledger) postCredits(ctx context.Context, t db.Txn, fresh []*payment.Credited) error {
	if len(fresh) == 0 {
		return nil
	}
	stmts, err := l.toAccounts(fresh)
	if err != nil {
		return err
	}
	if err := t.Run(ctx, stmts...); err != nil {
		return err
	}
	sums, err := sumUp(fresh, fundOf)
	if err != nil {
		return err
	}
	debits, covered := make([]db.Stmt, len(sums)), make([]int64, len(sums))
	for i, s := range sums {
		debits[i] = db.Stmt{
			SQL: `UPDATE credit_fund SET credited = credited + $3, credits = credits + $4
				WHERE client = $1 AND currency = $2 AND credited + $3 <= funded`,
			Args: []any{s.key.owner, s.key.currency, int64(s.amount), int64(len(s.credits))}, Changed: &covered[i],
		}
	}
	if err := t.Run(ctx, debits...); err != nil {
		return err
	}
	if i := slices.Index(covered, 0); i >= 0 {
		return exhausted(&sums[i].credits[0].Credit)
	}
	return nil
}

// toAccounts returns the statements that add to the balances, one for each account, followed by the statements that
// number the credits.
func (l *Ledger) toAccounts(fresh []*payment.Credited) ([]db.Stmt, error) {
	sums, err := sumUp(fresh, func(c *payment.Credit) creditSide { return creditSide{c.Account, c.Currency} })
	if err != nil {
		return nil, err
	}
	var stmts, lines []db.Stmt
	for _, s := range sums {
		stmts = append(stmts, db.Stmt{
			SQL:  l.tables.Dialect.AddToCreditAccount,
			Args: []any{s.key.owner, s.key.currency, int64(s.amount), int64(len(s.credits))},
		})
		for i, a := range s.credits {
			lines = append(lines, db.Stmt{
				SQL: `UPDATE credit SET line_no = (SELECT credits FROM credit_account WHERE id = $3 AND currency = $4) - $5
					WHERE client = $1 AND reference = $2`,
				Args: []any{a.Credit.Client, a.Credit.Reference, s.key.owner, s.key.currency, int64(len(s.credits) - 1 - i)},
			})
		}
	}
	return append(stmts, lines...), nil
}

// creditSide is an account, or a client's fund, in a currency.
type creditSide struct{ owner, currency string }

func fundOf(c *payment.Credit) creditSide { return creditSide{c.Client, c.Currency} }

// creditSum is what a transaction moves to an account, or from a fund.
type creditSum struct {
	key     creditSide
	amount  hongbao.Amount
	credits []*payment.Credited
}

// sumUp adds credits up by key, sorted by key.
func sumUp(fresh []*payment.Credited, keyOf func(*payment.Credit) creditSide) ([]creditSum, error) {
	byKey := map[creditSide]*creditSum{}
	for _, a := range fresh {
		key := keyOf(&a.Credit)
		s := byKey[key]
		if s == nil {
			s = &creditSum{key: key}
			byKey[key] = s
		}
		if s.amount += a.Credit.Amount; s.amount > hongbao.MaxAmount {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: the credits of one account or fund sum to more than %d",
				db.ErrOverdraw, hongbao.MaxAmount)
		}
		s.credits = append(s.credits, a)
	}
	sums := make([]creditSum, 0, len(byKey))
	for _, s := range byKey {
		sums = append(sums, *s)
	}
	slices.SortFunc(sums, func(a, b creditSum) int {
		return cmp.Or(strings.Compare(a.key.owner, b.key.owner), strings.Compare(a.key.currency, b.key.currency))
	})
	return sums, nil
}
