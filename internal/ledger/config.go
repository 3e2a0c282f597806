package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/knob"
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

// DefaultConfig returns a Config in which every knob has its default.
func DefaultConfig() Config { return knob.Defaults[Config]() }

// Config says how to connect to the ledger's database. DSN and every knob must be set.
type Config struct {
	// Kind of database; mysql includes MariaDB. SQLite serves one machine; several machines need one of the others.
	Driver Driver `knob:"ledger.driver,common" default:"sqlite" want:"postgres, mysql, sqlite"`
	// DSN is a connection string of libpq (URL or key=value) for PostgreSQL, user@tcp(host:port)/database?tls=... for
	// MySQL, the path of a file for SQLite. It may contain a password and is never logged.
	DSN string
	// The most connections of one process to the database. On SQLite these connections read; one more connection writes.
	Conns int `knob:"ledger.conns" default:"10" want:"1 to 1000 connections"`
	// Time limit for one attempt to connect to the database.
	ConnectTimeout time.Duration `knob:"ledger.connect_timeout" default:"5s" want:"10ms to 1m"`
	// How long a transaction waits for a lock of another transaction. MySQL rounds this time up to whole seconds.
	LockTimeout time.Duration `knob:"ledger.lock_timeout" default:"3s" want:"1ms to 10m"`
	// Time limit for one transaction with all its waits.
	Timeout time.Duration `knob:"ledger.timeout" default:"10s" want:"10ms to 1h"`
	// How often a transaction is repeated after a deadlock, or after it got no lock in time.
	Retries int `knob:"ledger.retries" default:"5" want:"1 to 100"`
	// Observe, if not nil, is called for each transaction that has ended. kind is read or write. again says that the
	// transaction lost a conflict with another one and is retried. Observe must be fast and safe for concurrent use.
	Observe func(kind string, took time.Duration, again bool, err error) `json:"-"`
	// Gate, if not nil, is asked around each transaction. Only SQLite has it; other servers have a network.
	Gate Gate `json:"-"`
	// Log, if not nil, gets the alarms. Otherwise they go to the log of the first Settler.
	Log *zap.Logger `json:"-"`
	// UnsafeAllow names unsafe server settings that Open accepts nevertheless; UnsafeSettings lists the possible names.
	// With them the ledger may lose money that it has confirmed.
	UnsafeAllow []string
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

// UnsafeSettings lists the settings that Config.UnsafeAllow may name.
func UnsafeSettings() []string {
	return []string{"fsync", "full_page_writes", "synchronous_commit",
		"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog"}
}

// Check returns everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	errs := knob.Check(c)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.DSN == "" {
		bad("the DSN is empty: want a connection string of PostgreSQL or MySQL, or the path of an SQLite file")
	}
	if c.Driver == SQLite && (strings.HasPrefix(c.DSN, ":") || strings.HasPrefix(c.DSN, "file:")) {
		bad("the DSN of SQLite is not a plain path: a ledger in memory loses its data, and the options of SQLite are fixed")
	}
	if c.Driver == MySQL && c.DSN != "" {
		if err := CheckMySQLDSN(c.DSN); err != nil {
			bad("%w", err)
		}
	}
	if c.Timeout <= c.LockTimeout {
		bad("the timeout of a transaction is %v: want more than the lock timeout, %v", c.Timeout, c.LockTimeout)
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
