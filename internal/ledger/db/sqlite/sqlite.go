// Package sqlite has the ledger's database in a file of SQLite: its statements, its schema, and its connections.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Name is the value of ledger.driver.
const Name = "sqlite"

// Database is a file of SQLite. It serves one machine.
type Database struct {
	// Path is the path of the file.
	Path string
	// Gate, if not nil, is asked around each transaction.
	Gate Gate `json:"-"`
}

// Gate stands between a process and the ledger's file, as a network stands between a process and a database server. An
// error at GateBegin or GateCommit ends the transaction without a change. An error at GateAnswer loses the answer to a
// COMMIT that has happened. The caller can't tell the last two apart.
type Gate func(ctx context.Context, at Moment) error

// Moment is a point of a transaction.
type Moment int

// The moments of a transaction, in their order.
const (
	GateBegin  Moment = iota // before it begins
	GateCommit               // before its COMMIT
	GateAnswer               // after its COMMIT, before the caller knows
)

// Dialect returns SQLite's dialect.
func (Database) Dialect() *db.Dialect { return &dialect }

// Check returns an error if the path is empty, or is not a plain path.
func (d Database) Check() error {
	if d.Path == "" {
		return errors.New("the path of the SQLite file is empty")
	}
	if strings.HasPrefix(d.Path, ":") || strings.HasPrefix(d.Path, "file:") {
		return errors.New("the path of the SQLite file is not a plain path: a ledger in memory loses its data, and the " +
			"options of SQLite are fixed")
	}
	return nil
}

// Open opens the file, or creates it if the caller migrates. A concurrent migration locks the whole file, so a caller
// that migrates waits longer for a lock.
func (d Database) Open(ctx context.Context, limits db.Limits, create bool) (db.Store, error) {
	path, err := filepath.Abs(d.Path)
	if err != nil {
		return nil, fmt.Errorf("find the file %s: %w", d.Path, err)
	}
	if err := findFile(path, create); err != nil {
		return nil, err
	}
	if create {
		limits.LockTimeout = max(limits.LockTimeout, limits.Timeout/2)
	}
	query := url.Values{"mode": {"rw"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", limits.LockTimeout.Milliseconds()),
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}).String()
	s := &store{gate: d.Gate}
	if s.gate == nil {
		s.gate = func(context.Context, Moment) error { return nil }
	}
	// SQLite has one write lock. A second connection would only wait for it, and without a fair queue.
	if s.writer, err = openPool(dsn, 1); err != nil {
		return nil, err
	}
	if s.readers, err = openPool(dsn, limits.Conns); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the file %s: %w", path, err), s.Close())
	}
	return s, nil
}

// findFile creates the file if it does not exist. Only its owner may read it, because it has seeds and coupon codes.
// SQLite gives the files -wal and -shm the same mode.
func findFile(path string, create bool) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it reports any other error
	}
	if !create {
		return hongbao.Errorf(hongbao.ClassBroken, "%w; point ledger.dsn to the right one, or create a new one with "+
			"`hongbao init`", &db.MissingError{What: "file " + path})
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // not exclusively: another process may create it, too
	if err != nil {
		return classify(fmt.Errorf("create the ledger's file: %w", err), false)
	}
	return file.Close()
}

func openPool(dsn string, conns int) (*sql.DB, error) {
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxLifetime(0)
	pool.SetConnMaxIdleTime(0)
	return pool, nil
}

func (s *store) check(ctx context.Context) error {
	var has settings
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return classify(err, false)
	}
	err = readPragmas(ctx, conn, &has)
	if err = errors.Join(err, conn.Close()); err != nil {
		return classify(err, false)
	}
	return db.Refuse(has.problems(), nil)
}
