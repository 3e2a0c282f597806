// Package db is what the ledger asks of a database: transactions of statements, the statements that differ between the
// databases, and the steps of the schema. The packages below it implement it: postgres, mysql and sqlite.
package db

import (
	"context"
	"time"
)

// Database is a database of a certain kind at a certain place. It is a value: it has no connection until Open.
type Database interface {
	// Dialect returns what differs between this kind of database and the others.
	Dialect() *Dialect
	// Check returns an error that names everything that is wrong with the place and its options.
	Check() error
	// Open connects to the database, and refuses unsafe settings of the server: its error then wraps a *SettingError for
	// each. create says that the caller migrates, so Open may create what does not exist yet. Otherwise a missing database
	// is an error that wraps a *MissingError.
	Open(ctx context.Context, limits Limits, create bool) (Store, error)
}

// Limits bound what one process asks of the database. Every knob must be set.
type Limits struct {
	// The most connections of one process to the database. On SQLite these connections read; one more connection writes.
	Conns int `knob:"ledger.conns" default:"10" want:"1 to 1000 connections"`
	// Time limit for one attempt to connect to the database.
	ConnectTimeout time.Duration `knob:"ledger.connect_timeout" default:"5s" want:"10ms to 1m"`
	// How long a transaction waits for a lock of another transaction. MySQL rounds this time up to whole seconds.
	LockTimeout time.Duration `knob:"ledger.lock_timeout" default:"3s" want:"1ms to 10m"`
	// Time limit for one transaction with all its waits.
	Timeout time.Duration `knob:"ledger.timeout" default:"10s" want:"10ms to 1h"`
}

// Store is an open database. Its errors have a class, and wrap ErrAgain or ErrOverdraw if these apply.
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

// Txn is a running transaction.
type Txn interface {
	// RefuseNewer makes the transaction fail with ErrNewerSchema if the schema is too new for this build. sql is
	// Queries.RefuseNewer with the build's version; it is sent with the transaction's first statement, in one round trip.
	RefuseNewer(ctx context.Context, sql string) error
	// Run executes the statements in order, in one round trip if the database supports it. Queries.InsertGrants must be
	// alone.
	Run(ctx context.Context, stmts ...Stmt) error
	// Query calls row for each row of the result. args are like those of a Stmt.
	Query(ctx context.Context, sql string, args []any, row func(Scan) error) error
}

// Stmt is one statement. Placeholders are $1, $2, ... on every database. SQL that differs between databases, like ON
// CONFLICT, is in Queries. Do not use RETURNING, which MySQL lacks.
type Stmt struct {
	SQL string
	// Args are the arguments. Only the first one may be a Table, and only for a statement of Queries.
	Args []any
	// Changed, if not nil, gets the number of rows that the statement changed. MySQL does not count a row that keeps its
	// values.
	Changed *int64
	// Row, if not nil, is called for each row that the statement returns.
	Row func(Scan) error
}

// Scan reads the current row.
type Scan func(dest ...any) error
