package tables

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// DB is the database of a ledger. Its methods are safe for concurrent use.
type DB struct {
	Store   db.Store
	Dialect *db.Dialect
	// Timeout limits a transaction. Retries is how often a transaction is repeated after a conflict with another one.
	Timeout time.Duration
	Retries int
	// Observe, if not nil, is called for each transaction that has ended; see ledger.Config.
	Observe func(kind string, took time.Duration, again bool, err error)
	// Wrote, if not nil, is called with the result of each transaction that Write or Together has tried.
	Wrote func(error)
	// RefuseNewer, if not empty, is a query that fails if the schema is too new for this build.
	RefuseNewer string
}

// Write runs a transaction, and retries it a bounded number of times while it fails with db.ErrAgain. Within Together
// it runs as a part of the outer transaction.
func (d *DB) Write(ctx context.Context, fn func(context.Context, db.Txn) ([]db.Stmt, error)) error {
	if t := togetherOf(ctx); t != nil {
		return t.write(ctx, fn)
	}
	return d.again(ctx, func() error {
		tctx, cancel := context.WithTimeout(ctx, d.Timeout)
		defer cancel()
		return d.Store.Write(tctx, d.Refusing(tctx, func(t db.Txn) ([]db.Stmt, error) { return fn(tctx, t) }))
	})
}

// ReadDurably is Read for an answer that confirms what it has read. It returns once that is on the servers for which a
// commit waits: on PostgreSQL what it has read may be committed, but not replicated yet.
func (d *DB) ReadDurably(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	return d.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) { return nil, fn(ctx, t) })
}

// Refusing makes a transaction fail once a newer build has changed the schema incompatibly. A DB without RefuseNewer
// refuses nothing: a ledger that migrates checks the schema itself, because it may have no tables yet.
func (d *DB) Refusing(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) func(db.Txn) ([]db.Stmt, error) {
	if d.RefuseNewer == "" {
		return fn
	}
	return func(t db.Txn) ([]db.Stmt, error) {
		if err := t.RefuseNewer(ctx, d.RefuseNewer); err != nil {
			return nil, err
		}
		return fn(t)
	}
}

// again runs a transaction, and retries it a bounded number of times while it fails with db.ErrAgain.
func (d *DB) again(ctx context.Context, transact func() error) error {
	run := func() (again bool, err error) {
		start := time.Now()
		err = transact()
		if d.Wrote != nil {
			d.Wrote(err)
		}
		again = errors.Is(err, db.ErrAgain)
		d.observe("write", start, again, err)
		if ctx.Err() != nil && hongbao.IsOutage(err) { // the caller gave up; the database is not down
			err = hongbao.Errorf(hongbao.ClassOf(err), "%w: %w", context.Cause(ctx), err)
		}
		return again, err
	}
	wait := retry.Backoff(2*time.Millisecond, 100*time.Millisecond, d.Timeout)
	retries := d.Retries + 1 // one more, because the first try only assumes that all rows are new
	return retry.Do(ctx, backoff.WithMaxRetries(wait, uint64(retries)), run)
}

// Read runs fn on one snapshot. Within a Together that has written something, it runs fn in that transaction.
func (d *DB) Read(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	if begun, err := togetherOf(ctx).read(ctx, fn); begun {
		return err
	}
	tctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	start := time.Now()
	err := d.Store.Read(tctx, func(t db.Txn) error { return fn(tctx, t) })
	d.observe("read", start, false, err)
	return err
}

func (d *DB) observe(kind string, start time.Time, again bool, err error) {
	if d.Observe != nil {
		d.Observe(kind, time.Since(start), again, err)
	}
}
