package tables

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// PageRows is the page size, in rows, of reads over a whole table.
const PageRows = 10_000

// paged is a transaction in which each query has its own time limit.
type paged struct {
	db.Txn
	limit time.Duration
}

// Query is that of the transaction, with the limit.
func (p paged) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	return p.Txn.Query(ctx, sql, args, row)
}

// ReadPages runs fn on one snapshot. DB.Timeout bounds each query, rather than all of them together, so each query
// must read a bounded number of rows.
func (d *DB) ReadPages(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	if begun, err := togetherOf(ctx).read(ctx, fn); begun {
		return err
	}
	return d.Store.Read(ctx, func(t db.Txn) error { return fn(ctx, paged{t, d.Timeout}) })
}

// EachPage repeats a query until a page has fewer than PageRows rows. row must advance the values that args returns.
func EachPage(ctx context.Context, t db.Txn, sql string, args func() []any, row func(db.Scan) error) error {
	for {
		rows := 0
		err := t.Query(ctx, sql, append(args(), int64(PageRows)), func(s db.Scan) error {
			rows++
			return row(s)
		})
		if err != nil || rows < PageRows {
			return err
		}
	}
}

// Cursor iterates over the rows of an ordered query, in pages of PageRows.
type Cursor[T any] struct {
	// Page returns the rows that follow the given row; the zero row stands for the beginning.
	Page func(after T) ([]T, error)
	rows []T
	last T
	end  bool
}

// Next returns the next row; false after the last one.
func (c *Cursor[T]) Next() (row T, ok bool, err error) {
	if len(c.rows) == 0 && !c.end {
		c.rows, err = c.Page(c.last)
		c.end = len(c.rows) < PageRows
	}
	if err != nil || len(c.rows) == 0 {
		return row, false, err
	}
	c.last, c.rows = c.rows[0], c.rows[1:]
	return c.last, true, nil
}
