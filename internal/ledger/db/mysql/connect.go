package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// driverConfig sets every option whose default could hang, change what a statement means, or hide an error.
func driverConfig(dsn string, limits *db.Limits) (*mysql.Config, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errDSN
	}
	c.Timeout = limits.ConnectTimeout
	c.ReadTimeout, c.WriteTimeout = limits.Timeout, limits.Timeout
	c.MaxAllowedPacket = minPacket
	c.Collation = "utf8mb4_bin"
	c.Loc, c.ParseTime = time.UTC, false
	// With both options, statements with arguments take one round trip. Otherwise the driver prepares, executes and
	// closes each of them.
	c.InterpolateParams, c.MultiStatements = true, true
	// An UPDATE counts only the rows that it has really changed. A proxy may override this, so no insert relies on the
	// count.
	c.ClientFoundRows = false
	// The store discards connections to read-only servers itself. The driver would hide the server's error.
	c.RejectReadOnly = false
	c.CheckConnLiveness = true
	c.AllowAllFiles, c.AllowOldPasswords = false, false
	c.ColumnsWithAlias = false
	c.Logger = &mysql.NopLogger{} // errors are returned
	// If a worker stalls within a transaction, wait_timeout ends the transaction and releases its locks.
	lock, wait := seconds(limits.LockTimeout), seconds(limits.Timeout)
	c.Params = map[string]string{
		"sql_mode":                 "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,PIPES_AS_CONCAT'",
		"autocommit":               "1",
		"foreign_key_checks":       "1",
		"unique_checks":            "1",
		"innodb_lock_wait_timeout": lock,
		"lock_wait_timeout":        lock,
		"wait_timeout":             wait,
	}
	return c, nil
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// connector checks the server's settings on every new connection, because a failover may lead to another server.
type connector struct {
	driver.Connector
	allow   []string // settings that may be unsafe
	timeout time.Duration
}

func newConnector(d *Database, limits *db.Limits) (*connector, error) {
	config, err := driverConfig(d.DSN, limits)
	if err != nil {
		return nil, err
	}
	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errDSN
	}
	return &connector{Connector: c, allow: d.UnsafeAllow, timeout: limits.Timeout}, nil
}

// Connect returns a connection to a server whose settings are safe.
func (m *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := rawConnOf(conn)
	if err == nil {
		err = m.gate(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// rawConn is the part of the driver's connection that we need beyond database/sql.
type rawConn interface {
	driver.ExecerContext
	driver.QueryerContext
}

func rawConnOf(conn any) (rawConn, error) {
	c, ok := conn.(rawConn)
	if !ok {
		return nil, fmt.Errorf("%T is not a connection of go-sql-driver/mysql", conn)
	}
	return c, nil
}

func (m *connector) gate(ctx context.Context, conn rawConn) error {
	settings, err := readSettings(ctx, conn)
	if err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	if err := db.Refuse(settings.problems(), m.allow); err != nil {
		return err
	}
	set := fmt.Sprintf("SET SESSION max_execution_time = %d", m.timeout.Milliseconds())
	if settings.mariaDB() {
		set = fmt.Sprintf("SET SESSION check_constraint_checks = ON, max_statement_time = %.3f", m.timeout.Seconds())
	}
	if _, err := conn.ExecContext(ctx, set, nil); err != nil {
		return fmt.Errorf("%s: %w", set, err)
	}
	return nil
}

const ask = `SHOW SESSION VARIABLES WHERE Variable_name IN (
	'version', 'read_only', 'super_read_only', 'innodb_read_only',
	'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_flush_method',
	'log_bin', 'sync_binlog', 'binlog_format',
	'sql_mode', 'max_allowed_packet',
	'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_wait_point',
	'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_wait_point')`

func readSettings(ctx context.Context, conn rawConn) (settings, error) {
	rows, err := conn.QueryContext(ctx, ask, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := settings{}
	row := make([]driver.Value, 2)
	for {
		err := rows.Next(row)
		if errors.Is(err, io.EOF) {
			return settings, nil
		}
		if err != nil {
			return nil, err
		}
		name, value := fmt.Sprintf("%s", row[0]), fmt.Sprintf("%s", row[1])
		settings[strings.ToLower(name)] = value
	}
}
