package tables

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// together is the transaction of a call of Together. It begins with the first write, so reads before that hold neither
// a lock nor a connection.
type together struct {
	db  *DB
	ctx context.Context // the transaction's context; set when it begins

	mu     turn.Lock // serializes concurrent calls of fn in the transaction
	txn    db.Txn    // nil: not begun
	commit func() error
	after  []func(context.Context) error
	failed error // the first error of a part; if set, all is rolled back
}

type togetherKey struct{}

func togetherOf(ctx context.Context) *together {
	t, _ := ctx.Value(togetherKey{}).(*together)
	return t
}

// InTogether reports whether what is read and written with this context is part of a Together.
func InTogether(ctx context.Context) bool { return togetherOf(ctx) != nil }

// WithoutTogether returns a context whose writes are not part of the Together that ctx belongs to.
func WithoutTogether(ctx context.Context) context.Context {
	return context.WithValue(ctx, togetherKey{}, (*together)(nil))
}

// errGivenUp rolls back a transaction that must not be committed.
var errGivenUp = errors.New("given up")

// Together runs fn. All that fn writes with its context, by any method, is one transaction. Together commits if fn
// returns no error, and rolls back otherwise. A nested Together joins the outer one. If the transaction loses a
// conflict with another one, Together calls fn again. The first write begins the transaction; from then on
// DB.Timeout bounds it, and its reads see its own writes.
func (d *DB) Together(ctx context.Context, fn func(context.Context) error) error {
	if togetherOf(ctx) != nil {
		return fn(ctx)
	}
	var t *together
	err := d.again(ctx, func() error {
		tctx, cancel := context.WithCancel(ctx)
		defer cancel()
		t = &together{db: d}
		return t.run(context.WithValue(tctx, togetherKey{}, t), fn)
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, fn := range t.after {
		errs = append(errs, fn(ctx))
	}
	return errors.Join(errs...)
}

// Repeats reports whether the Together that ctx belongs to calls its fn again after this error, so the caller must not
// treat the error as final.
func Repeats(ctx context.Context, err error) bool {
	return togetherOf(ctx) != nil && errors.Is(err, db.ErrAgain)
}

// AfterCommit runs fn once the Together that ctx belongs to is committed. Without a Together it runs fn at once. Use it
// to send the ledger's data to another server. If fn fails, Together returns its error, but the transaction stays
// committed.
func AfterCommit(ctx context.Context, fn func(context.Context) error) error {
	t := togetherOf(ctx)
	if t == nil {
		return fn(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = append(t.after, fn)
	return nil
}

// run runs fn, and ends the transaction even if fn panics.
func (t *together) run(ctx context.Context, fn func(context.Context) error) (err error) {
	err = errGivenUp
	defer func() { err = t.end(err) }()
	return fn(ctx)
}

// begin begins the transaction, if it has not begun. The caller holds t.mu.
func (t *together) begin(ctx context.Context) error {
	if err := t.lostPart(); err != nil || t.txn != nil {
		return err
	}
	// The transaction stays open over many calls of this type, but store.write runs a transaction in one call. So a
	// coroutine keeps that call open.
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), t.db.Timeout)
	var err error
	next, stop := iter.Pull(func(yield func(db.Txn) bool) {
		err = t.db.Store.Write(t.ctx, t.db.Refusing(t.ctx, func(x db.Txn) ([]db.Stmt, error) {
			if !yield(x) {
				return nil, errGivenUp
			}
			return nil, nil
		}))
	})
	end := func() {
		stop()
		cancel()
	}
	x, ok := next()
	if !ok {
		end()
		t.failed = err
		return err
	}
	t.txn = x
	t.commit = func() error {
		defer end()
		if t.failed == nil {
			next()
		}
		return err
	}
	return nil
}

// lostPart returns an error if a part of the transaction has failed, although fn has ignored that. The database may
// have rolled back the part's writes, so all of fn must be retried.
func (t *together) lostPart() error {
	if t.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", db.ErrAgain, t.failed)
}

// end commits if nothing has failed; otherwise it rolls back.
func (t *together) end(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.failed != nil:
		err = t.lostPart()
	case t.failed == nil:
		t.failed = err
	}
	if t.commit != nil {
		if committed := t.commit(); err == nil {
			err = committed
		}
	}
	return err
}

// write runs a part of the transaction.
func (t *together) write(ctx context.Context, fn func(context.Context, db.Txn) ([]db.Stmt, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := t.bound(ctx)
	defer cancel()
	last, err := fn(ctx, t.txn)
	if err == nil && len(last) > 0 {
		err = t.txn.Run(ctx, last...)
	}
	t.failed = err
	return err
}

// read runs fn in the transaction; begun is false if there is no transaction or it has not begun.
func (t *together) read(ctx context.Context, fn func(context.Context, db.Txn) error) (begun bool, err error) {
	if t == nil {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.lostPart(); err != nil {
		return true, err
	}
	if t.txn == nil {
		return false, nil
	}
	ctx, cancel := t.bound(ctx)
	defer cancel()
	t.failed = fn(ctx, t.txn)
	return true, t.failed
}

// bound applies the transaction's deadline to a part of it.
func (t *together) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := t.ctx.Deadline()
	return context.WithDeadline(ctx, deadline)
}
