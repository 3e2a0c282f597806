package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// mysqlParams are the parameters that a DSN may have. mysqlConfig sets the others.
var mysqlParams = []string{"tls", "serverPubKey", "allowNativePasswords", "allowCleartextPasswords",
	"connectionAttributes"}

var errMySQLDSN = errors.New("the DSN is not a connection string of go-sql-driver/mysql: want " +
	"user@tcp(host:3306)/database?tls=true")

// CheckMySQLDSN returns an error if a DSN for MySQL is invalid. The error never contains the password.
func CheckMySQLDSN(dsn string) error {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return errMySQLDSN
	}
	if c.DBName == "" {
		return errors.New("the DSN names no database: want user@tcp(host:3306)/database")
	}
	_, query, _ := strings.Cut(dsn[strings.LastIndex(dsn, "/"):], "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return errMySQLDSN
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(mysqlParams, name) {
			return fmt.Errorf("the DSN's parameter %.40q is not allowed: want only %s", name, strings.Join(mysqlParams,
				", "))
		}
	}
	return nil
}

// mysqlConfig sets every option whose default could hang, change what a statement means, or hide an error.
func mysqlConfig(config *Config) (*mysql.Config, error) {
	c, err := mysql.ParseDSN(config.DSN)
	if err != nil {
		return nil, errMySQLDSN
	}
	c.Timeout = config.ConnectTimeout
	c.ReadTimeout, c.WriteTimeout = config.Timeout, config.Timeout
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
	lock, wait := seconds(config.LockTimeout), seconds(config.Timeout)
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

// mysqlConnector checks the server's settings on every new connection, because a failover may lead to another server.
type mysqlConnector struct {
	driver.Connector
	config *Config
}

func newMySQLConnector(config *Config) (*mysqlConnector, error) {
	c, err := mysqlConfig(config)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, errMySQLDSN
	}
	return &mysqlConnector{Connector: connector, config: config}, nil
}

// Connect returns a connection to a server whose settings are safe.
func (m *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := mysqlConnOf(conn)
	if err == nil {
		err = m.gate(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// mysqlConn is the part of the driver's connection that we need beyond database/sql.
type mysqlConn interface {
	driver.ExecerContext
	driver.QueryerContext
}

func mysqlConnOf(conn any) (mysqlConn, error) {
	c, ok := conn.(mysqlConn)
	if !ok {
		return nil, fmt.Errorf("%T is not a connection of go-sql-driver/mysql", conn)
	}
	return c, nil
}

func (m *mysqlConnector) gate(ctx context.Context, conn mysqlConn) error {
	settings, err := readMySQLSettings(ctx, conn)
	if err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	if err := db.Refuse(settings.problems(), m.config.UnsafeAllow); err != nil {
		return err
	}
	set := "SET SESSION max_execution_time = " + millis(m.config.Timeout)
	if settings.mariaDB() {
		set = fmt.Sprintf("SET SESSION check_constraint_checks = ON, max_statement_time = %.3f", m.config.Timeout.Seconds())
	}
	if _, err := conn.ExecContext(ctx, set, nil); err != nil {
		return fmt.Errorf("%s: %w", set, err)
	}
	return nil
}

const mysqlAsk = `SHOW SESSION VARIABLES WHERE Variable_name IN (
	'version', 'read_only', 'super_read_only', 'innodb_read_only',
	'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_flush_method',
	'log_bin', 'sync_binlog', 'binlog_format',
	'sql_mode', 'max_allowed_packet',
	'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_wait_point',
	'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_wait_point')`

func readMySQLSettings(ctx context.Context, conn mysqlConn) (mysqlSettings, error) {
	rows, err := conn.QueryContext(ctx, mysqlAsk, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := mysqlSettings{}
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
