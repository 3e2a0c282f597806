package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Query is a query and the function that converts its rows.
type Query[T any] struct {
	What string // what the query tries to do, for errors; only All and One need it
	SQL  string
	Args []any
	Row  func(db.Scan) (T, error)
}

// Ask returns a Query.
func Ask[T any](what, sql string, args []any, row func(db.Scan) (T, error)) Query[T] {
	return Query[T]{What: what, SQL: sql, Args: args, Row: row}
}

// In runs the query in a transaction and returns its rows.
func (q Query[T]) In(ctx context.Context, t db.Txn) (list []T, err error) {
	err = t.Query(ctx, q.SQL, q.Args, func(s db.Scan) error {
		v, err := q.Row(s)
		list = append(list, v)
		return err
	})
	return list, err
}

// First runs the query in a transaction and returns its first row; false if there is none.
func (q Query[T]) First(ctx context.Context, t db.Txn) (v T, found bool, err error) {
	list, err := q.In(ctx, t)
	if err != nil || len(list) == 0 {
		return v, false, err
	}
	return list[0], true, nil
}

// All runs the query on its own snapshot and returns its rows.
func (q Query[T]) All(ctx context.Context, d *DB) ([]T, error) {
	return Snapshot(ctx, d, q.What, q.In)
}

// One runs the query on its own snapshot and returns its first row; false if there is none.
func (q Query[T]) One(ctx context.Context, d *DB) (v T, found bool, err error) {
	list, err := q.All(ctx, d)
	if err != nil || len(list) == 0 {
		return v, false, err
	}
	return list[0], true, nil
}

// Snapshot runs fn on one snapshot. Its errors begin with the text what.
func Snapshot[T any](ctx context.Context, d *DB, what string, fn func(context.Context, db.Txn) (T, error)) (v T,
	err error) {
	err = d.Read(ctx, func(ctx context.Context, t db.Txn) (err error) {
		v, err = fn(ctx, t)
		return err
	})
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}

// Number scans a row with one column, a number.
func Number(s db.Scan) (n int64, err error) {
	err = s(&n)
	return n, err
}

// Text scans a row with one column, a text.
func Text(s db.Scan) (v string, err error) {
	err = s(&v)
	return v, err
}

// At converts a column of milliseconds to a time; 0 is the zero time.
func At(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Milli is the reverse of At.
func Milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
