// Package db is what the ledger asks of a database: transactions of statements, the statements that differ between the
// databases, and the steps of the schema. The packages below it implement it: postgres, mysql and sqlite.
package db

import "context"

// Stmt is one statement. Placeholders are $1, $2, ... on every database. SQL that differs between databases, like ON
// CONFLICT, is in Queries. Do not use RETURNING, which MySQL lacks.
type Stmt struct {
	SQL  string
	Args []any
	// Changed, if not nil, gets the number of rows that the statement changed. MySQL does not count a row that keeps its
	// values.
	Changed *int64
	// Row, if not nil, is called for each row that the statement returns. Only statements for PostgreSQL set it.
	Row func(Scan) error
	// Rows, if not 0, says that args are columns with this many rows, each []string, []int32 or []int64. If the dialect
	// copies, COPY writes them into table grants; then SQL has the names of the columns, and no other statement may be in
	// the call. If the dialect is byRow, the row of placeholders in SQL is repeated.
	Rows int
}

// AppendRow appends the values of a row to a slice.
func (s *Stmt) AppendRow(to []any, row int) []any {
	for _, column := range s.Args {
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

// Scan reads the current row.
type Scan func(dest ...any) error

// Txn is a running transaction.
type Txn interface {
	// RefuseNewer makes the transaction fail with ErrNewerSchema if the schema is too new for this build. sql is
	// Ledger.refuseNewer; it is sent with the transaction's first statement, in one round trip.
	RefuseNewer(ctx context.Context, sql string) error
	// Run executes the statements in order, in one round trip if the database supports it.
	Run(ctx context.Context, stmts ...Stmt) error
	// Query calls row for each row of the result.
	Query(ctx context.Context, sql string, args []any, row func(Scan) error) error
}

// Store is a database. Its errors have a class, and wrap ErrAgain or ErrOverdraw if these apply.
type Store interface {
	// Write runs fn in a transaction at READ COMMITTED or stricter, then the statements that fn returns, and commits. The
	// returned statements and COMMIT are sent together, so their locks last only one round trip. An error means that
	// nothing was committed, unless its class is Unknown.
	Write(ctx context.Context, fn func(Txn) ([]Stmt, error)) error
	// Read runs fn on one snapshot.
	Read(ctx context.Context, fn func(Txn) error) error
	// Close waits for running transactions.
	Close() error
}
