package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

const (
	// onceAge is how long a result is kept.
	onceAge = 24 * time.Hour
	// onceClaim is how long a request without a result counts as running. After that another call may take it over. This
	// is safe: the first call can't store its result any more, so its transaction is rolled back.
	onceClaim = time.Minute
)

// Once performs a request once, even if the request is repeated.
//
// do makes the effect and returns the result, which must be non-empty JSON. All that do writes to the ledger with its
// context is in one transaction with the result. For 24 hours a repeated request gets the stored result, and again is
// true. If do fails, the transaction is rolled back and nothing is stored: the next request with the key calls do
// again. Once may call do more than once if the transaction loses a conflict.
//
// Writes of do to Redis are outside the transaction, so they must be idempotent. Slow work that is not part of the
// effect, such as storing a campaign's codes, belongs after Once. The caller must do it after a repeated request, too.
//
// Besides the errors of do, Once returns access.ErrKeyRequired, access.ErrKeyReused, access.ErrUnderWay, and errors of
// the ledger, which have a class. After an error of class Unknown, repeat the same request to learn what happened.
func (l *Ledger) Once(ctx context.Context, r access.Request, do func(context.Context) ([]byte, error)) (answer []byte,
	again bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	claim := rand.Text()
	kept, err := l.claimOnce(ctx, &r, claim)
	if err != nil || kept != "" {
		return []byte(kept), kept != "", wrapOnce(&r, err)
	}
	err = l.tables.Together(ctx, func(ctx context.Context) (err error) {
		if answer, err = do(ctx); err != nil {
			return err
		}
		return l.keepAnswer(ctx, &r, claim, answer)
	})
	if err == nil {
		return answer, false, nil
	}
	// The condition answer = '' keeps the result if the transaction was committed after all.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.tables.Timeout)
	defer cancel()
	released := l.tables.Write(ending, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		return []db.Stmt{{SQL: `DELETE FROM idempotency WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
			Args: []any{r.Caller, r.Key, claim}}}, nil
	})
	if released != nil { // the claim expires by itself
		err = fmt.Errorf("%w (for %s a repeat is refused because the request counts as under way: %w)", err, onceClaim,
			released)
	}
	return nil, false, err
}

func wrapOnce(r *access.Request, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("look up Idempotency-Key %.40q of %s: %w", r.Key, r.Caller, err)
}

// claimOnce claims a request, or returns its stored result. It deletes rows that are older than a day.
func (l *Ledger) claimOnce(ctx context.Context, r *access.Request, claim string) (answer string, err error) {
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		answer = ""
		err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM idempotency WHERE claimed_at < ` + l.tables.Dialect.Now + ` - $1`,
			Args: []any{onceAge.Milliseconds()}},
			db.Stmt{SQL: l.tables.Dialect.InsertOnceClaim, Args: []any{r.Caller, r.Key, r.Hash, claim}})
		if err != nil {
			return nil, err
		}
		var hash, holder string
		var age int64
		err = t.Query(ctx, `SELECT body_hash, claim, answer, `+l.tables.Dialect.Now+` - claimed_at FROM idempotency
			WHERE caller = $1 AND idempotency_key = $2`, []any{r.Caller, r.Key},
			func(s db.Scan) error { return s(&hash, &holder, &answer, &age) })
		switch {
		case err != nil || holder == claim: // this call inserted the claim
			return nil, err
		case hash != r.Hash:
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "%w", access.ErrKeyReused)
		case answer != "":
			return nil, nil
		case age < onceClaim.Milliseconds():
			return nil, hongbao.Errorf(hongbao.ClassTransient, "%w", access.ErrUnderWay)
		}
		return nil, l.takeClaim(ctx, t, r, holder, claim)
	})
	return answer, err
}

// takeClaim takes over an expired claim, whose process has probably died.
func (l *Ledger) takeClaim(ctx context.Context, t db.Txn, r *access.Request, holder, claim string) error {
	var changed int64
	err := t.Run(ctx, db.Stmt{SQL: `UPDATE idempotency SET claim = $4, claimed_at = ` + l.tables.Dialect.Now + `
		WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
		Args: []any{r.Caller, r.Key, holder, claim}, Changed: &changed})
	if err == nil && changed == 0 {
		err = hongbao.Errorf(hongbao.ClassTransient, "%w", access.ErrUnderWay)
	}
	return err
}

// keepAnswer stores the result in the same transaction as the effect.
func (l *Ledger) keepAnswer(ctx context.Context, r *access.Request, claim string, answer []byte) error {
	if len(answer) == 0 {
		return errors.New("keep the answer to a request: it is empty, so a repeat could not find it")
	}
	return l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		var changed int64
		err := t.Run(ctx, db.Stmt{SQL: `UPDATE idempotency SET answer = $4
			WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
			Args: []any{r.Caller, r.Key, claim, string(answer)}, Changed: &changed})
		if err == nil && changed == 0 { // the claim expired and another call took it over
			err = hongbao.Errorf(hongbao.ClassTransient, "this call changed nothing: %w", access.ErrUnderWay)
		}
		return nil, err
	})
}
