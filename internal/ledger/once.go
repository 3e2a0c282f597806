package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

const (
	// onceAge is how long an answer is kept.
	onceAge = 24 * time.Hour
	// onceClaim is how long a request without an answer counts as under way. Whoever takes it over then is safe: the
	// first one's transaction can't write its answer any more, so it is rolled back.
	onceClaim = time.Minute
)

// Once does a request once, however often it comes.
//
// do makes the effect and gives the answer, JSON that is not empty. All that it writes to the ledger with its context
// goes into one transaction, and the answer with it: both are there, or neither. The same request again gets the first
// answer, with again true, for 24 hours. An error of do rolls back and is kept nowhere: the next request under the key
// is tried anew. do may be called more than once, if its transaction loses against another one.
//
// What do writes to Redis is in no transaction, so it must be idempotent by nature. Slow work that is not part of the
// effect, as storing a campaign's codes, is to stand outside, behind it, and to be done after a repeat as well.
//
// Its own errors are access.ErrKeyRequired, access.ErrKeyReused, access.ErrUnderWay, and the ledger's, which have a
// class. After one of class Unknown the same request tells what happened.
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
	err = l.Together(ctx, func(ctx context.Context) (err error) {
		if answer, err = do(ctx); err != nil {
			return err
		}
		return l.keepAnswer(ctx, &r, claim, answer)
	})
	if err == nil {
		return answer, false, nil
	}
	// A transaction that was committed all the same has left its answer, and that stays.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.Timeout)
	defer cancel()
	released := l.write(ending, func(ctx context.Context, t txn) ([]stmt, error) {
		return []stmt{{sql: `DELETE FROM idempotency WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
			args: []any{r.Caller, r.Key, claim}}}, nil
	})
	if released != nil { // it ends by itself
		err = fmt.Errorf("%w (and a repeat is told for %s that it is under way: %w)", err, onceClaim, released)
	}
	return nil, false, err
}

func wrapOnce(r *access.Request, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("look up Idempotency-Key %.40q of %s: %w", r.Key, r.Caller, err)
}

// claimOnce claims a request, or gives its answer. It ends what is older than a day.
func (l *Ledger) claimOnce(ctx context.Context, r *access.Request, claim string) (answer string, err error) {
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		answer = ""
		err := t.run(ctx, stmt{sql: `DELETE FROM idempotency WHERE claimed_at < ` + l.dialect.now + ` - $1`,
			args: []any{onceAge.Milliseconds()}},
			stmt{sql: l.dialect.insertOnceClaim, args: []any{r.Caller, r.Key, r.Hash, claim}})
		if err != nil {
			return nil, err
		}
		var hash, holder string
		var age int64
		err = t.query(ctx, `SELECT body_hash, claim, answer, `+l.dialect.now+` - claimed_at FROM idempotency
			WHERE caller = $1 AND idempotency_key = $2`, []any{r.Caller, r.Key},
			func(s scan) error { return s(&hash, &holder, &answer, &age) })
		switch {
		case err != nil || holder == claim: // the insert's own claim
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

// takeClaim goes on for a process that has died.
func (l *Ledger) takeClaim(ctx context.Context, t txn, r *access.Request, holder, claim string) error {
	var changed int64
	err := t.run(ctx, stmt{sql: `UPDATE idempotency SET claim = $4, claimed_at = ` + l.dialect.now + `
		WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
		args: []any{r.Caller, r.Key, holder, claim}, changed: &changed})
	if err == nil && changed == 0 {
		err = hongbao.Errorf(hongbao.ClassTransient, "%w", access.ErrUnderWay)
	}
	return err
}

// keepAnswer writes the answer beside the effect.
func (l *Ledger) keepAnswer(ctx context.Context, r *access.Request, claim string, answer []byte) error {
	if len(answer) == 0 {
		return errors.New("keep the answer to a request: it is empty, so a repeat would not find it")
	}
	return l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		var changed int64
		err := t.run(ctx, stmt{sql: `UPDATE idempotency SET answer = $4
			WHERE caller = $1 AND idempotency_key = $2 AND claim = $3 AND answer = ''`,
			args: []any{r.Caller, r.Key, claim, string(answer)}, changed: &changed})
		if err == nil && changed == 0 { // this call took longer than a claim lasts
			err = hongbao.Errorf(hongbao.ClassTransient, "nothing was done here: %w", access.ErrUnderWay)
		}
		return nil, err
	})
}
