package ledger

import "context"

// stmt is one statement. Placeholders are $1, $2, ... on every database. SQL that differs between databases, like ON
// CONFLICT, is in folder sql. Do not use RETURNING, which MySQL lacks.
type stmt struct {
	sql  string
	args []any
	// changed, if not nil, gets the number of rows that the statement changed. MySQL does not count a row that keeps its
	// values.
	changed *int64
	// row, if not nil, is called for each row that the statement returns. Only statements for PostgreSQL set it.
	row func(scan) error
	// rows, if not 0, says that args are columns with this many rows, each []string, []int32 or []int64. If the dialect
	// copies, COPY writes them into table grants; then sql has the names of the columns, and no other statement may be in
	// the call. If the dialect is byRow, the row of placeholders in sql is repeated.
	rows int
}

// appendRow appends the values of a row to a slice.
func (s *stmt) appendRow(to []any, row int) []any {
	for _, column := range s.args {
		switch column := column.(type) {
		case []string:
			to = append(to, column[row])
		case []int32:
			to = append(to, column[row])
		case []int64:
			to = append(to, column[row])
		}
	}
	return to
}

// scan reads the current row.
type scan func(dest ...any) error

// txn is a running transaction.
type txn interface {
	// refuseNewer makes the transaction fail with ErrNewerSchema if the schema is too new for this build. sql is
	// Ledger.refuseNewer; it is sent with the transaction's first statement, in one round trip.
	refuseNewer(ctx context.Context, sql string) error
	// run executes the statements in order, in one round trip if the database supports it.
	run(ctx context.Context, stmts ...stmt) error
	// query calls row for each row of the result.
	query(ctx context.Context, sql string, args []any, row func(scan) error) error
}

// store is a database. Its errors have a class, and wrap errAgain or errOverdraw if these apply.
type store interface {
	// write runs fn in a transaction at READ COMMITTED or stricter, then the statements that fn returns, and commits. The
	// returned statements and COMMIT are sent together, so their locks last only one round trip. An error means that
	// nothing was committed, unless its class is Unknown.
	write(ctx context.Context, fn func(txn) ([]stmt, error)) error
	// read runs fn on one snapshot.
	read(ctx context.Context, fn func(txn) error) error
	// close waits for running transactions.
	close() error
}
