package ledger

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMySQLErrorClasses(t *testing.T) {
	t.Parallel()
	answer := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	for name, c := range map[string]struct {
		err    error
		sent   bool
		class  hongbao.Class
		outage bool
		mark   error
	}{
		"lost before COMMIT":     {mysql.ErrInvalidConn, false, hongbao.ClassTransient, true, nil},
		"lost after COMMIT":      {mysql.ErrInvalidConn, true, hongbao.ClassUnknown, true, nil},
		"reset after COMMIT":     {io.ErrUnexpectedEOF, true, hongbao.ClassUnknown, true, nil},
		"timeout after COMMIT":   {context.DeadlineExceeded, true, hongbao.ClassUnknown, true, nil},
		"COMMIT did not leave":   {driver.ErrBadConn, true, hongbao.ClassTransient, true, nil},
		"shutdown before":        {answer(1053), false, hongbao.ClassTransient, true, nil},
		"shutdown after":         {answer(1053), true, hongbao.ClassUnknown, true, nil},
		"killed":                 {answer(1927), true, hongbao.ClassUnknown, true, nil},
		"interrupted":            {answer(1317), true, hongbao.ClassUnknown, true, nil},
		"statement timeout":      {answer(1969), false, hongbao.ClassTransient, true, nil},
		"error during COMMIT":    {answer(1180), true, hongbao.ClassUnknown, true, nil},
		"too many connections":   {answer(1040), false, hongbao.ClassTransient, true, nil},
		"disk full":              {answer(1021), false, hongbao.ClassTransient, true, nil},
		"table full":             {answer(1114), false, hongbao.ClassTransient, true, nil},
		"read-only":              {answer(1290), false, hongbao.ClassTransient, true, nil},
		"read-only transaction":  {answer(1792), false, hongbao.ClassTransient, true, nil},
		"no such table":          {answer(1146), false, hongbao.ClassTransient, true, nil},
		"wrong password":         {answer(1045), false, hongbao.ClassTransient, true, nil},
		"deadlock":               {answer(1213), true, hongbao.ClassTransient, true, db.ErrAgain},
		"lock timeout":           {answer(1205), true, hongbao.ClassTransient, true, db.ErrAgain},
		"a batch id drawn twice": {answer(1062), true, hongbao.ClassTransient, true, db.ErrAgain},
		"check on MySQL":         {answer(3819), true, hongbao.ClassPermanent, false, db.ErrOverdraw},
		"check on MariaDB":       {answer(4025), true, hongbao.ClassPermanent, false, db.ErrOverdraw},
		"out of range":           {answer(1264), true, hongbao.ClassPermanent, false, nil},
		"overflow":               {answer(1690), true, hongbao.ClassPermanent, false, nil},
		"too long":               {answer(1406), false, hongbao.ClassPermanent, false, nil},
		"too long to be sent":    {driver.ErrSkip, true, hongbao.ClassPermanent, false, nil},
		"row deleted by hand":    {answer(1452), true, hongbao.ClassBroken, false, nil},
		"an unknown code":        {answer(65000), false, hongbao.ClassTransient, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := mysqlError(c.err, c.sent)
			require.Equal(t, c.class, hongbao.ClassOf(err))
			require.Equal(t, c.outage, hongbao.IsOutage(err))
			require.ErrorIs(t, err, c.err)
			for _, mark := range []error{db.ErrAgain, db.ErrOverdraw} {
				require.Equal(t, mark == c.mark, errors.Is(err, mark))
			}
		})
	}
}

func TestMySQLNumbered(t *testing.T) {
	t.Parallel()
	s := mysqlNumbered(`SELECT a FROM t WHERE b = $2 AND c = $1 AND d > $2`)
	require.Equal(t, `SELECT a FROM t WHERE b = ? AND c = ? AND d > ?`, s.text)
	require.Equal(t, []any{"two", "one", "two"}, s.args([]any{"one", "two"}))
}

func TestMySQLDSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"hongbao@tcp(h:3306)/hongbao":                    "",
		"hongbao:p@ss/w?rd@tcp(h:3306)/hongbao?tls=true": "",
		"hongbao@unix(/run/mysqld.sock)/hongbao":         "",
		"hongbao:hunter2@tcp(h:3306": "is not a connection string of " +
			"go-sql-driver/mysql",
		"hongbao:hunter2@tcp(h:3306)/":                                         "names no database",
		"hongbao:hunter2@tcp(h:3306)/db?multiStatements=false":                 `parameter "multiStatements" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?tls=true&clientFoundRows=true":         `parameter "clientFoundRows" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?innodb_flush_log_at_trx_commit=0":      `"innodb_flush_log_at_trx_commit" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?sql_mode=%27%27&allowAllFiles=true":    `parameter "allowAllFiles" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?tls=no-such-config&serverPubKey=nope%": "is not a connection string",
	} {
		config := testConfig(MySQL, dsn)
		err := config.Check()
		if want == "" {
			require.NoError(t, err, dsn)
			continue
		}
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestMySQLConfig(t *testing.T) {
	t.Parallel()
	config := testConfig(MySQL, "u:p@tcp(h:1)/db?tls=true")
	config.LockTimeout, config.Timeout = 1500*time.Millisecond, 20*time.Second
	c, err := mysqlConfig(&config)
	require.NoError(t, err)
	require.Equal(t, []any{"u", "p", "tcp", "h:1", "db", "true"}, []any{c.User, c.Passwd, c.Net, c.Addr, c.DBName,
		c.TLSConfig})
	require.Equal(t, []time.Duration{5 * time.Second, 20 * time.Second, 20 * time.Second},
		[]time.Duration{c.Timeout, c.ReadTimeout, c.WriteTimeout})
	require.Equal(t, []bool{true, true, true}, []bool{c.InterpolateParams, c.MultiStatements, c.CheckConnLiveness})
	require.NotContains(t, []bool{c.ClientFoundRows, c.ParseTime, c.RejectReadOnly, c.AllowAllFiles,
		c.AllowOldPasswords, c.ColumnsWithAlias, c.AllowFallbackToPlaintext}, true)
	require.Equal(t, time.UTC, c.Loc)
	require.Equal(t, 16<<20, c.MaxAllowedPacket)
	require.Equal(t, "utf8mb4_bin", c.Collation)
	require.Equal(t, "2", c.Params["innodb_lock_wait_timeout"])
	require.Equal(t, "20", c.Params["wait_timeout"])
}

func TestMariaDBSession(t *testing.T) {
	t.Parallel()
	l := open(t, mariadbConfig(t))
	store := l.store.(*mysqlStore)
	require.Equal(t, l.config.Conns, store.db.Stats().MaxOpenConnections)
	got := map[string]string{}
	ask := func(x db.Txn) error {
		return x.Query(t.Context(), `SHOW SESSION VARIABLES`, nil, func(s db.Scan) error {
			var name, value string
			err := s(&name, &value)
			got[name] = value
			return err
		})
	}
	require.NoError(t, store.Read(t.Context(), ask))
	want := map[string]string{
		"sql_mode":                 "PIPES_AS_CONCAT,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
		"foreign_key_checks":       "ON",
		"unique_checks":            "ON",
		"autocommit":               "ON",
		"innodb_lock_wait_timeout": "10",
		"lock_wait_timeout":        "10",
		"wait_timeout":             "30",
		"character_set_client":     "utf8mb4",
		"collation_connection":     "utf8mb4_bin",
	}
	if testkit.OnMySQL() {
		want["max_execution_time"] = "30000"
	} else {
		want["check_constraint_checks"], want["max_statement_time"] = "ON", "30.000000"
	}
	for name, want := range want {
		require.Equal(t, want, got[name], name)
	}
}

// TestMariaDBIsolation checks the isolation levels: a write sees rows that others commit meanwhile; a read has one
// snapshot.
func TestMariaDBIsolation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, mariadbConfig(t))
	store := f.ledger.store.(*mysqlStore)
	look := func(x db.Txn) (n int64) {
		require.NoError(t, x.Query(t.Context(), `SELECT COUNT(*) FROM campaign`, nil, func(s db.Scan) error { return s(&n) }))
		return n
	}
	require.NoError(t, store.Write(t.Context(), func(x db.Txn) ([]db.Stmt, error) {
		require.Zero(t, look(x))
		f.create(t, "rain", 1)
		require.EqualValues(t, 1, look(x), "READ COMMITTED")
		return nil, nil
	}))
	err := store.Read(t.Context(), func(x db.Txn) error {
		require.EqualValues(t, 1, look(x))
		f.create(t, "snow", 1)
		require.EqualValues(t, 1, look(x), "one snapshot")
		return x.Run(t.Context(), db.Stmt{SQL: `DELETE FROM campaign`})
	})
	require.True(t, mysqlReadOnly(err), "%v", err)
	require.NoError(t, store.Read(t.Context(), func(x db.Txn) error {
		require.EqualValues(t, 2, look(x))
		return nil
	}))
}

func TestMySQLSettings(t *testing.T) {
	t.Parallel()
	good := mysqlSettings{
		"version": "8.0.16", "read_only": "OFF", "super_read_only": "OFF", "innodb_read_only": "OFF",
		"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "innodb_flush_method": "fsync", "log_bin": "ON",
		"sync_binlog": "1", "binlog_format": "ROW", "sql_mode": "PIPES_AS_CONCAT,STRICT_ALL_TABLES",
		"max_allowed_packet": "16777216", "rpl_semi_sync_source_enabled": "ON",
		"rpl_semi_sync_source_wait_point": "AFTER_SYNC",
	}
	require.Empty(t, good.problems())
	for setting, values := range map[string]map[string]bool{
		"version": {"8.4.3": true, "9.1.0-debug": true, "10.6.0-MariaDB": true, "11.8.2-MariaDB-ubu2404": true,
			"8.0.15": false, "5.7.44-log": false, "10.5.29-MariaDB": false, "8.0.11-TiDB-v7.5.0": false, "unknown": false},
		"read_only":                       {"ON": false},
		"super_read_only":                 {"ON": false},
		"innodb_read_only":                {"ON": false},
		"innodb_flush_log_at_trx_commit":  {"0": false, "2": false, "3": false},
		"innodb_doublewrite":              {"OFF": false, "DETECT_ONLY": false, "DETECT_AND_RECOVER": true},
		"innodb_flush_method":             {"nosync": false, "littlesync": false, "O_DIRECT": true},
		"sync_binlog":                     {"0": false, "100": false},
		"binlog_format":                   {"STATEMENT": false, "MIXED": true},
		"sql_mode":                        {"": false, "STRICT_ALL_TABLES": false, "PIPES_AS_CONCAT": false},
		"max_allowed_packet":              {"4194304": false, "67108864": true, "": false},
		"rpl_semi_sync_source_wait_point": {"AFTER_COMMIT": false},
	} {
		for value, fine := range values {
			s := maps.Clone(good)
			s[setting] = value
			bad := s.problems()
			if fine {
				require.Empty(t, bad, "%s = %s", setting, value)
				continue
			}
			require.Len(t, bad, 1, "%s = %s", setting, value)
			require.Equal(t, setting, bad[0].Setting)
			require.Equal(t, value, bad[0].Value)
			require.NotEmpty(t, bad[0].Fix)
		}
	}
	s := maps.Clone(good)
	s["log_bin"], s["sync_binlog"], s["binlog_format"] = "OFF", "0", "STATEMENT"
	s["version"], s["innodb_flush_log_at_trx_commit"] = "10.11.19-MariaDB", "3"
	delete(s, "super_read_only")
	s["rpl_semi_sync_source_enabled"], s["rpl_semi_sync_source_wait_point"] = "OFF", "AFTER_COMMIT"
	s["rpl_semi_sync_master_enabled"], s["rpl_semi_sync_master_wait_point"] = "ON", "AFTER_SYNC"
	require.Empty(t, s.problems(), "if the binary log is off, its settings do not matter")
	s["read_only"], s["innodb_flush_log_at_trx_commit"] = "ON", "2"
	err := db.Refuse(s.problems(), UnsafeSettings())
	require.ErrorContains(t, err, "read_only is ON")
	require.NotContains(t, err.Error(), "innodb_flush_log_at_trx_commit")
}

// TestMariaDBRefused gives a real server unsafe settings (F39, B48). Open refuses the server, and so does a worker that
// is already running.
func TestMariaDBRefused(t *testing.T) {
	t.Parallel()
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{Settings: map[string]string{"log_bin": "binlog",
		"innodb_doublewrite": "on"}})
	name := server.Database(t)
	admin := mariadb(t, server.AdminDSN(name))
	config := testConfig(MySQL, server.DSN(name))
	f := newFixture(t, config)
	f.create(t, "rain", 100)
	root := config
	root.DSN = server.AdminDSN(name) // root may write even to a read-only server
	for _, c := range []struct{ setting, bad, good string }{
		{"innodb_flush_log_at_trx_commit", "2", "1"},
		{"sync_binlog", "0", "1"},
		{"binlog_format", "'STATEMENT'", "'MIXED'"},
		{"max_allowed_packet", "1048576", "16777216"},
		{"read_only", "ON", "OFF"},
	} {
		execute(t, admin, fmt.Sprintf("SET GLOBAL %s = %s", c.setting, c.bad))
		for _, config := range []Config{config, root} {
			_, err := Open(t.Context(), config)
			var refused *db.SettingError
			require.ErrorAs(t, err, &refused, c.setting)
			require.Equal(t, c.setting, refused.Setting)
			require.NotEmpty(t, refused.Fix)
			require.ErrorContains(t, err, c.setting+" is ")
		}
		_, err := killOtherMariaDB(t.Context(), admin) // a failover closes all connections, too
		require.NoError(t, err)
		testkit.EventuallyOK(t, 30*time.Second, func() error {
			errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
			require.Len(t, errs, 5, c.setting)
			require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
			var refused *db.SettingError
			if !errors.As(errs[0], &refused) {
				return errs[0]
			}
			return nil
		}, "a running worker refuses the server, too")
		execute(t, admin, fmt.Sprintf("SET GLOBAL %s = %s", c.setting, c.good))
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5))) == nil },
		"the server is safe again")
	f.holds(t, "rain", grantsOf("rain", 1, 5))
	execute(t, admin, "SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL sync_binlog = 0")
	config.UnsafeAllow = []string{"innodb_flush_log_at_trx_commit", "sync_binlog"}
	open(t, config)
}

// TestMariaDBReadOnlyServer makes the server read-only while a connection stays open. The settler reports an outage,
// and no grant is lost.
func TestMariaDBReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{})
	name := server.Database(t)
	admin := mariadb(t, server.AdminDSN(name))
	config := testMariaDB(server.DSN(name))
	config.Conns = 1
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	execute(t, admin, "SET GLOBAL read_only = ON")
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	require.Len(t, errs, 5)
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]))
	require.True(t, mysqlReadOnly(errs[0]), "%v", errs[0])
	errs = f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	var refused *db.SettingError
	require.ErrorAs(t, errs[0], &refused, "the store discards the connection and checks the next one")
	execute(t, admin, "SET GLOBAL read_only = OFF")
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))

	execute(t, admin, "SET GLOBAL read_only = ON")
	_, err := f.ledger.Live(t.Context())
	require.True(t, mysqlReadOnly(err), "a former primary may have keys that were revoked since: %v", err)
	_, err = f.ledger.Live(t.Context())
	require.ErrorAs(t, err, &refused, "the store discards the connection and checks the next one")
}

// TestMigrationKilledAnywhere cuts the connection of a migration after the server has executed a message, for each
// message in turn. The next migration finishes the work.
func TestMigrationKilledAnywhere(t *testing.T) {
	t.Parallel()
	steps := mysqlDialect.Migrations
	proxy, config := mariadbBehindProxy(t)
	messages := countMessages(proxy, 0)
	_, err := Migrate(t.Context(), config)
	require.NoError(t, err)
	require.Greater(t, messages.Load(), int64(20), "the migration has more messages")
	for at := int64(1); at <= messages.Load(); at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			proxy, config := mariadbBehindProxy(t)
			countMessages(proxy, at)
			_, _ = Migrate(t.Context(), config) // succeeds if only the last response was lost
			require.Equal(t, 1, proxy.Fired().Swallowed, "the fault did not happen")
			f := newFixture(t, config)
			f.create(t, "rain", 3)
			f.settles(t, grantsOf("rain", 1, 3)...)
			f.holds(t, "rain", grantsOf("rain", 1, 3))
			var begun, done int
			require.NoError(t, mariadb(t, config.DSN).QueryRowContext(t.Context(),
				`SELECT SUM(applied_at = 0), SUM(applied_at > 0) FROM hongbao_schema`).Scan(&begun, &done))
			require.Zero(t, begun)
			require.Len(t, steps, done)
		})
	}
}

// countMessages counts the messages that clients send, and drops the response to the n-th message, counted from 1; with
// n = 0 it drops none.
func countMessages(proxy *proxy.Proxy, n int64) *atomic.Int64 {
	var seen atomic.Int64
	goodbye := []byte{1, 0, 0, 0, 1} // COM_QUIT, which has no response
	proxy.SwallowAnswers(1, func(request []byte) bool { return !bytes.Equal(request, goodbye) && seen.Add(1) == n })
	return &seen
}

// TestMigrationMeetsStrangers checks that a migration fails if another program has a table of the same name, even if
// the migration is repeated.
func TestMigrationMeetsStrangers(t *testing.T) {
	t.Parallel()
	config := mariadbConfig(t)
	conn := mariadb(t, config.DSN)
	execute(t, conn, "CREATE TABLE grants (id bigint)")
	for range 3 {
		_, err := Migrate(t.Context(), config)
		require.ErrorContains(t, err, "'grants' already exists")
	}
	execute(t, conn, "DROP TABLE grants")
	f := newFixture(t, config)
	f.create(t, "rain", 3)
	f.settles(t, grantsOf("rain", 1, 3)...)
	f.holds(t, "rain", grantsOf("rain", 1, 3))
}
