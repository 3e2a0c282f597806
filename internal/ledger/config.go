package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Driver names a kind of database.
type Driver string

// The databases.
const (
	PostgreSQL Driver = "postgres"
	SQLite     Driver = "sqlite"
	// MySQL is MySQL or MariaDB.
	MySQL Driver = "mysql"
)

// DefaultConfig has what a program may leave out: all but Driver, DSN and UnsafeAllow.
func DefaultConfig() Config {
	return Config{Conns: 10, ConnectTimeout: 5 * time.Second, LockTimeout: 3 * time.Second, Timeout: 10 * time.Second,
		Retries: 5}
}

// Config is how to reach the ledger's database. Every field but UnsafeAllow must be set.
type Config struct {
	Driver Driver
	// DSN is a connection string of libpq (URL or key=value) for PostgreSQL, user@tcp(host:port)/database?tls=... for
	// MySQL, the path of a file for SQLite. It may hold a password and is never logged.
	DSN string
	// Conns bounds the connections, 1 to 1000. On SQLite they are the readers; the one writer comes on top.
	Conns int
	// ConnectTimeout bounds one attempt to connect.
	ConnectTimeout time.Duration
	// LockTimeout bounds the wait for a lock of another transaction, on SQLite for its only write lock. MySQL counts
	// it in whole seconds, rounded up.
	LockTimeout time.Duration
	// Timeout bounds one transaction with all its waits. It must be above LockTimeout.
	Timeout time.Duration
	// Retries is how often a transaction that lost a deadlock or a lock is run again inside one call, 1 to 100.
	Retries int
	// UnsafeAllow names the settings that Open would refuse and shall accept all the same, of UnsafeSettings. The
	// ledger may then forget money that it has confirmed.
	UnsafeAllow []string
}

// UnsafeSettings lists what Config.UnsafeAllow may name.
func UnsafeSettings() []string {
	return []string{"fsync", "full_page_writes", "synchronous_commit",
		"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog"}
}

// Check tells everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if drivers := []Driver{PostgreSQL, MySQL, SQLite}; !slices.Contains(drivers, c.Driver) {
		bad("driver %.40q does not exist: want one of %q", c.Driver, drivers)
	}
	if c.DSN == "" {
		bad("the DSN is empty: want a connection string of PostgreSQL or MySQL, or the path of an SQLite file")
	}
	if c.Driver == SQLite && (strings.HasPrefix(c.DSN, ":") || strings.HasPrefix(c.DSN, "file:")) {
		bad("the DSN of SQLite is not a plain path: a ledger in memory forgets, and its options are not to be chosen")
	}
	if c.Driver == MySQL && c.DSN != "" {
		if err := CheckMySQLDSN(c.DSN); err != nil {
			bad("%w", err)
		}
	}
	if c.Conns < 1 || c.Conns > 1000 {
		bad("%d connections: want 1 to 1000", c.Conns)
	}
	if c.ConnectTimeout <= 0 {
		bad("the connect timeout is %v: want more than 0", c.ConnectTimeout)
	}
	if c.LockTimeout < time.Millisecond {
		bad("the lock timeout is %v: want at least 1ms", c.LockTimeout)
	}
	if c.Timeout <= c.LockTimeout {
		bad("the timeout of a transaction is %v: want more than the lock timeout, %v", c.Timeout, c.LockTimeout)
	}
	if c.Retries < 1 || c.Retries > 100 {
		bad("%d retries: want 1 to 100", c.Retries)
	}
	for _, name := range c.UnsafeAllow {
		if !slices.Contains(UnsafeSettings(), name) {
			bad("unsafe-allow %.40q does not exist: want one of %v", name, UnsafeSettings())
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("ledger configuration: %w", errors.Join(errs...))
}
