// Package mysql has the ledger's database on MySQL or MariaDB: its statements, its schema, and its connections.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Name is the value of ledger.driver.
const Name = "mysql"

// Database is a database on a server of MySQL, version 8.0.16 or newer, or of MariaDB, version 10.6 or newer.
type Database struct {
	// DSN is user@tcp(host:port)/database?tls=... It may contain a password and is never logged.
	DSN string
	// UnsafeAllow names unsafe settings that Open accepts nevertheless; Unsafe lists the possible names. With them the
	// ledger may lose money that it has confirmed.
	UnsafeAllow []string
}

// Unsafe lists the settings that Database.UnsafeAllow may name.
func Unsafe() []string {
	return []string{"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog"}
}

// Dialect returns the dialect of MySQL and MariaDB.
func (Database) Dialect() *db.Dialect { return &dialect }

// Check returns an error that names everything that is wrong with the DSN and the other fields. It never contains the
// password.
func (d Database) Check() error {
	return errors.Join(checkDSN(d.DSN), db.CheckUnsafe(d.UnsafeAllow, Unsafe()))
}

// Open connects to the database. It never creates one.
func (d Database) Open(ctx context.Context, limits db.Limits, _ bool) (db.Store, error) {
	connector, err := newConnector(&d, &limits)
	if err != nil {
		return nil, err
	}
	m := &store{db: sql.OpenDB(connector), timeout: limits.Timeout}
	m.db.SetMaxOpenConns(limits.Conns)
	m.db.SetMaxIdleConns(limits.Conns)
	m.db.SetConnMaxLifetime(time.Hour)
	// The pool must close idle connections before the server does so after wait_timeout, which is Limits.Timeout.
	m.db.SetConnMaxIdleTime(limits.Timeout / 2)
	conn, err := m.db.Conn(ctx)
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		return nil, errors.Join(classify(err, false), m.Close())
	}
	return m, nil
}

// allowedParams are the parameters that a DSN may have. driverConfig sets the others.
var allowedParams = []string{"tls", "serverPubKey", "allowNativePasswords", "allowCleartextPasswords",
	"connectionAttributes"}

var errDSN = errors.New("the DSN is not a connection string of go-sql-driver/mysql: want " +
	"user@tcp(host:3306)/database?tls=true")

// checkDSN returns an error if a DSN is invalid. The error never contains the password.
func checkDSN(dsn string) error {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return errDSN
	}
	if c.DBName == "" {
		return errors.New("the DSN names no database: want user@tcp(host:3306)/database")
	}
	_, query, _ := strings.Cut(dsn[strings.LastIndex(dsn, "/"):], "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return errDSN
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(allowedParams, name) {
			return fmt.Errorf("the DSN's parameter %.40q is not allowed: want only %s", name, strings.Join(allowedParams,
				", "))
		}
	}
	return nil
}
