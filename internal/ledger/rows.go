package ledger

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// rowQuery is a query and the function that converts its rows.
type rowQuery[T any] struct {
	what string // what the query tries to do, for errors
	sql  string
	args []any
	row  func(db.Scan) (T, error)
}

// in runs the query in a transaction and returns its rows.
func (q rowQuery[T]) in(ctx context.Context, t db.Txn) (list []T, err error) {
	err = t.Query(ctx, q.sql, q.args, func(s db.Scan) error {
		v, err := q.row(s)
		list = append(list, v)
		return err
	})
	return list, err
}

// first runs the query in a transaction and returns its first row; false if there is none.
func (q rowQuery[T]) first(ctx context.Context, t db.Txn) (v T, found bool, err error) {
	list, err := q.in(ctx, t)
	if err != nil || len(list) == 0 {
		return v, false, err
	}
	return list[0], true, nil
}

// all runs the query on its own snapshot and returns its rows.
func (q rowQuery[T]) all(ctx context.Context, l *Ledger) ([]T, error) {
	return snapshot(ctx, l, q.what, q.in)
}

// one runs the query on its own snapshot and returns its first row; false if there is none.
func (q rowQuery[T]) one(ctx context.Context, l *Ledger) (v T, found bool, err error) {
	list, err := q.all(ctx, l)
	if err != nil || len(list) == 0 {
		return v, false, err
	}
	return list[0], true, nil
}

// snapshot runs fn on one snapshot. Its errors begin with the text what.
func snapshot[T any](ctx context.Context, l *Ledger, what string, fn func(context.Context, db.Txn) (T, error)) (v T,
	err error) {
	err = l.read(ctx, func(ctx context.Context, t db.Txn) (err error) {
		v, err = fn(ctx, t)
		return err
	})
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}

// number and text scan a row with one column.
func number(s db.Scan) (n int64, err error) {
	err = s(&n)
	return n, err
}

func text(s db.Scan) (v string, err error) {
	err = s(&v)
	return v, err
}
