package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed sql/sqlite.sql
var sqliteSQL string

var sqliteDialect = db.Dialect{
	Queries:     db.LoadQueries(db.Standard, sqliteSQL),
	Migrations:  db.MustLoadSteps(migrationFiles, "migrations/sqlite"),
	Pack:        db.PackJSON,
	ByRow:       true,
	Version:     `sqlite_version()`,
	Connections: `0`,
	Now:         `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
}

type sqliteStore struct {
	writer, readers *sql.DB
	gate            Gate
}

func openSQLite(ctx context.Context, config *Config, create bool) (*sqliteStore, error) {
	path, err := filepath.Abs(config.DSN)
	if err != nil {
		return nil, fmt.Errorf("find the file %s: %w", config.DSN, err)
	}
	if err := sqliteFile(path, create); err != nil {
		return nil, err
	}
	query := url.Values{"mode": {"rw"}, "_pragma": {
		"busy_timeout(" + millis(config.LockTimeout) + ")", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}).String()
	s := &sqliteStore{gate: config.Gate}
	if s.gate == nil {
		s.gate = func(context.Context, Moment) error { return nil }
	}
	// SQLite has one write lock. A second connection would only wait for it, and without a fair queue.
	if s.writer, err = openPool(dsn, 1); err != nil {
		return nil, err
	}
	if s.readers, err = openPool(dsn, config.Conns); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	if err := s.check(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("the file %s: %w", path, err), s.Close())
	}
	return s, nil
}

// sqliteFile creates the file if it does not exist. Only its owner may read it, because it has seeds and coupon codes.
// SQLite gives the files -wal and -shm the same mode.
func sqliteFile(path string, create bool) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it reports any other error
	}
	if !create {
		return hongbao.Errorf(hongbao.ClassBroken, "%w: there is no file %s; point ledger.dsn to the right one, "+
			"or create a new one with `hongbao init`",
			ErrNotInitialized, path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // not exclusively: another process may create it, too
	if err != nil {
		return sqliteError(fmt.Errorf("create the ledger's file: %w", err), false)
	}
	return file.Close()
}

func openPool(dsn string, conns int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(0)
	db.SetConnMaxIdleTime(0)
	return db, nil
}

func (s *sqliteStore) check(ctx context.Context, config *Config) error {
	var has sqliteSettings
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return sqliteError(err, false)
	}
	err = readPragmas(ctx, conn, &has)
	if err = errors.Join(err, conn.Close()); err != nil {
		return sqliteError(err, false)
	}
	return db.Refuse(has.problems(), config.UnsafeAllow)
}

func readPragmas(ctx context.Context, conn *sql.Conn, s *sqliteSettings) error {
	for _, p := range []struct {
		name string
		dest any
	}{
		{"journal_mode", &s.journal}, {"synchronous", &s.synchronous},
		{"foreign_keys", &s.foreignKeys}, {"busy_timeout", &s.timeout},
	} {
		if err := conn.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(p.dest); err != nil {
			return fmt.Errorf("read PRAGMA %s: %w", p.name, err)
		}
	}
	return nil
}

func (s *sqliteStore) Close() error {
	return errors.Join(s.readers.Close(), s.writer.Close())
}

func (s *sqliteStore) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return s.transact(ctx, s.writer, "BEGIN IMMEDIATE", fn)
}

func (s *sqliteStore) Read(ctx context.Context, fn func(db.Txn) error) error {
	return s.transact(ctx, s.readers, "BEGIN", func(t db.Txn) ([]db.Stmt, error) { return nil, fn(t) })
}

func (s *sqliteStore) transact(ctx context.Context, pool *sql.DB, begin string, fn func(db.Txn) ([]db.Stmt, error)) error {
	if err := s.gate(ctx, GateBegin); err != nil {
		return sqliteError(err, false)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return sqliteError(fmt.Errorf("get a connection: %w", err), false)
	}
	defer conn.Close()
	t := &sqliteTxn{conn: conn}
	if err := t.Run(ctx, db.Stmt{SQL: begin}); err != nil {
		return err
	}
	last, err := fn(t)
	if err == nil {
		err = t.Run(ctx, last...)
	}
	if err == nil {
		var committed bool
		if committed, err = s.commit(ctx, conn); committed {
			return err
		}
	}
	t.rollback(ctx)
	return err
}

// commit reports whether the transaction is committed, which can be true with an error.
func (s *sqliteStore) commit(ctx context.Context, conn *sql.Conn) (committed bool, err error) {
	if err = s.gate(ctx, GateCommit); err == nil {
		if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
			committed = true
			err = s.gate(ctx, GateAnswer)
		}
	}
	if err != nil {
		err = sqliteError(fmt.Errorf("commit: %w", err), true)
	}
	return committed, err
}

type sqliteTxn struct {
	conn *sql.Conn
}

func (t *sqliteTxn) RefuseNewer(ctx context.Context, sql string) error {
	return t.Query(ctx, sql, nil, func(db.Scan) error {
		return hongbao.Outagef(hongbao.ClassTransient, "SQLite: %w", db.ErrNewerSchema)
	})
}

func (t *sqliteTxn) Run(ctx context.Context, stmts ...db.Stmt) error {
	for _, s := range stmts {
		changed, err := t.exec(ctx, &s)
		if err != nil {
			return sqliteError(fmt.Errorf("%.60s...: %w", s.SQL, err), false)
		}
		if s.Changed != nil {
			*s.Changed = changed
		}
	}
	return nil
}

func (t *sqliteTxn) exec(ctx context.Context, s *db.Stmt) (changed int64, err error) {
	if s.Rows > 0 {
		return t.execRows(ctx, s)
	}
	r, err := t.conn.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// sqliteRows is how many rows a statement has. More rows need fewer calls, but take SQLite more time to compile.
const sqliteRows = 100

// execRows executes a statement for many rows, sqliteRows at once.
func (t *sqliteTxn) execRows(ctx context.Context, s *db.Stmt) (changed int64, err error) {
	for from := 0; from < s.Rows && err == nil; {
		size := min(sqliteRows, s.Rows-from)
		times := (s.Rows - from) / size
		var n int64
		n, err = t.execSets(ctx, s, from, size, times)
		from, changed = from+size*times, changed+n
	}
	return changed, err
}

// execSets compiles a statement for size rows, and executes it repeatedly, each time for the next size rows.
func (t *sqliteTxn) execSets(ctx context.Context, s *db.Stmt, from, size, times int) (changed int64, err error) {
	before, row, _ := strings.Cut(s.SQL, "VALUES ")
	row, after, _ := strings.Cut(row, "\n")
	prepared, err := t.conn.PrepareContext(ctx,
		before+"VALUES "+strings.Repeat(row+", ", size-1)+row+"\n"+after)
	if err != nil {
		return 0, err
	}
	defer prepared.Close()
	args := make([]any, 0, size*len(s.Args))
	for range times {
		args = args[:0]
		for i := from; i < from+size; i++ {
			args = s.AppendRow(args, i)
		}
		r, err := prepared.ExecContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return 0, err
		}
		from, changed = from+size, changed+n
	}
	return changed, nil
}

func (t *sqliteTxn) Query(ctx context.Context, query string, args []any, row func(db.Scan) error) error {
	rows, err := t.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return sqliteError(fmt.Errorf("%.60s...: %w", query, err), false)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return sqliteError(fmt.Errorf("%.60s...: %w", query, err), false)
	}
	return nil
}

// rollback ends the transaction, so that the pool can reuse the connection. ROLLBACK may fail because SQLite has
// already rolled back, so its error is ignored. If the connection can't begin a transaction afterwards, it is
// discarded.
func (t *sqliteTxn) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = t.conn.ExecContext(ctx, "ROLLBACK")
	for _, probe := range []string{"BEGIN", "ROLLBACK"} {
		if _, err := t.conn.ExecContext(ctx, probe); err != nil {
			_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
			return
		}
	}
}

// sqliteError classifies an error of SQLite. sent says that it is the result of a COMMIT.
func sqliteError(err error, sent bool) error {
	class := hongbao.ClassTransient
	if sent {
		class = hongbao.ClassUnknown
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return hongbao.Outagef(class, "SQLite: %w", err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED: // if COMMIT meets a lock, nothing is committed
		return hongbao.Outagef(hongbao.ClassTransient, "SQLite, another process holds the file's lock: %w: %w", db.ErrAgain, err)
	case sqlite3.SQLITE_CONSTRAINT:
		return sqliteConstraint(e.Code(), err)
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return hongbao.Errorf(hongbao.ClassBroken, "SQLite, the file is damaged: %w", err)
	}
	return hongbao.Outagef(class, "SQLite: %w", err) // full, I/O, read-only, interrupted
}

func sqliteConstraint(code int, err error) error {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_CHECK:
		return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w: %w", db.ErrOverdraw, err)
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE: // duplicate key
		return hongbao.Errorf(hongbao.ClassTransient, "SQLite: %w: %w", db.ErrAgain, err)
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return hongbao.Errorf(hongbao.ClassBroken, "SQLite, a row was deleted by hand: %w", err)
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w", err)
}
