// Package postgres has the ledger's database on PostgreSQL: its statements, its schema, and its connections.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Name is the value of ledger.driver.
const Name = "postgres"

// Database is a database on a server of PostgreSQL, version 13 or newer.
type Database struct {
	// DSN is a connection string of libpq (URL or key=value). It may contain a password and is never logged.
	DSN string
	// UnsafeAllow names unsafe settings that Open accepts nevertheless; Unsafe lists the possible names. With them the
	// ledger may lose money that it has confirmed.
	UnsafeAllow []string
}

// Unsafe lists the settings that Database.UnsafeAllow may name.
func Unsafe() []string { return []string{"fsync", "full_page_writes", "synchronous_commit"} }

// Dialect returns PostgreSQL's dialect.
func (Database) Dialect() *db.Dialect { return &dialect }

// Check returns an error that names everything that is wrong with the DSN and the other fields.
func (d Database) Check() error {
	var errs []error
	if d.DSN == "" {
		errs = append(errs, errors.New("the DSN is empty: want postgres://user@host:port/database?..."))
	}
	return errors.Join(append(errs, db.CheckUnsafe(d.UnsafeAllow, Unsafe()))...)
}

// Open connects to the database. It never creates one.
func (d Database) Open(ctx context.Context, limits db.Limits, _ bool) (db.Store, error) {
	pc, err := d.poolConfig(&limits)
	if err != nil {
		return nil, err
	}
	p := &store{}
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return d.gate(ctx, conn, &limits) }
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("create the connection pool: %w", err)
	}
	conn, err := p.pool.Acquire(ctx)
	if err == nil {
		conn.Release()
		return p, nil
	}
	p.pool.Close()
	var unsafe *db.SettingError
	if errors.As(err, &unsafe) { // no outage: an operator has to change the server, or the DSN
		return nil, err
	}
	return nil, classify(fmt.Errorf("get a connection to PostgreSQL: %w", err), false)
}

func (d Database) poolConfig(limits *db.Limits) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(d.DSN)
	if err != nil {
		// The text of a parse error can contain the password.
		return nil, errors.New("the DSN is not a connection string of PostgreSQL: want " +
			"postgres://user@host:port/database?...")
	}
	setPool(pc, limits)
	pc.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error { return renewTLS(cc, d.DSN) }
	return pc, nil
}

// renewTLS reads the DSN's certificates and key again, since they may have been renewed.
func renewTLS(cc *pgx.ConnConfig, dsn string) error {
	now, err := pgx.ParseConfig(dsn)
	if err != nil {
		return errors.New("the files that the DSN names as sslrootcert, sslcert and sslkey can't be read any more")
	}
	cc.TLSConfig, cc.Fallbacks = now.TLSConfig, now.Fallbacks
	return nil
}

// setPool sets every option whose default could hang or hold a lock permanently.
func setPool(pc *pgxpool.Config, limits *db.Limits) {
	pc.MaxConns = int32(limits.Conns)
	pc.MinConns = 0
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 5 * time.Minute
	pc.MaxConnIdleTime = 10 * time.Minute
	pc.HealthCheckPeriod = 30 * time.Second
	pc.ConnConfig.ConnectTimeout = limits.ConnectTimeout
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	pc.ConnConfig.StatementCacheCapacity = 128
	pc.ConnConfig.OnNotice = keepWarning
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = "hongbao"
	params["lock_timeout"] = millis(limits.LockTimeout)
	params["statement_timeout"] = millis(limits.Timeout)
	// If a worker stalls within a transaction, the server ends the transaction and releases its locks.
	params["idle_in_transaction_session_timeout"] = millis(limits.Timeout)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
