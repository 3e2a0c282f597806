// Package ledgertest has what the tests of the ledger's packages share: databases of each kind, and the campaigns and
// grants of the tests. Package opened, below it, opens a ledger on a database.
package ledgertest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// SQLite returns a new, empty database of SQLite.
func SQLite(t testing.TB) db.Database {
	return sqlite.Database{Path: filepath.Join(t.TempDir(), "ledger ?#%.db")}
}

// Postgres returns a new, empty database of PostgreSQL.
func Postgres(t testing.TB) db.Database { return PostgresAt(testkit.Postgres(t)) }

// PostgresAt allows the two unsafe settings with which testkit's servers are faster.
func PostgresAt(dsn string) db.Database {
	return postgres.Database{DSN: dsn, UnsafeAllow: []string{"fsync", "full_page_writes"}}
}

// MariaDB returns a new, empty database of MariaDB, or of MySQL under HONGBAO_TEST_ON_MYSQL.
func MariaDB(t testing.TB) db.Database { return MariaDBAt(testkit.MariaDB(t)) }

// MariaDBAt allows the unsafe setting with which testkit's servers are faster.
func MariaDBAt(dsn string) db.Database {
	return mysql.Database{DSN: dsn, UnsafeAllow: []string{"innodb_doublewrite"}}
}

// Retries and Limits are the configuration of the tests' ledgers.
const Retries = 10

// Limits returns the limits of the tests' ledgers.
func Limits() db.Limits {
	return db.Limits{Conns: 8, ConnectTimeout: 5 * time.Second, LockTimeout: 10 * time.Second, Timeout: 30 * time.Second}
}

// Run runs each case on a fixture of its own.
func Run[F any](t *testing.T, cases map[string]func(*testing.T, F), newFixture func(*testing.T) F) {
	t.Helper()
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newFixture(t))
		})
	}
}

// Tamper writes to a database without the checks of the ledger.
func Tamper(t testing.TB, on *tables.DB, stmts ...db.Stmt) {
	t.Helper()
	require.NoError(t, on.Store.Write(t.Context(), func(db.Txn) ([]db.Stmt, error) { return stmts, nil }))
}

// Number returns the first column of the first row of a query; 0 without a row.
func Number(t testing.TB, on *tables.DB, sql string, args ...any) int64 {
	t.Helper()
	n, _, err := tables.Ask("read a number", sql, args, tables.Number).One(t.Context(), on)
	require.NoError(t, err)
	return n
}

// Watched is a store that calls Query after each query of a transaction, and Run before each call of Run and for its
// last statements. Both may be nil.
type Watched struct {
	db.Store
	Query func(ctx context.Context, sql string, rows int)
	Run   func(stmts int)
}

type watchedTxn struct {
	db.Txn
	by *Watched
}

// Read is that of the store.
func (w *Watched) Read(ctx context.Context, fn func(db.Txn) error) error {
	return w.Store.Read(ctx, func(t db.Txn) error { return fn(watchedTxn{t, w}) })
}

// Write is that of the store.
func (w *Watched) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return w.Store.Write(ctx, func(t db.Txn) ([]db.Stmt, error) {
		last, err := fn(watchedTxn{t, w})
		if len(last) > 0 && w.Run != nil {
			w.Run(len(last))
		}
		return last, err
	})
}

// Run is that of the transaction.
func (t watchedTxn) Run(ctx context.Context, stmts ...db.Stmt) error {
	if t.by.Run != nil {
		t.by.Run(len(stmts))
	}
	return t.Txn.Run(ctx, stmts...)
}

// Query is that of the transaction.
func (t watchedTxn) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	rows := 0
	err := t.Txn.Query(ctx, sql, args, func(s db.Scan) error {
		rows++
		return row(s)
	})
	if t.by.Query != nil {
		t.by.Query(ctx, sql, rows)
	}
	return err
}
