package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// TestMariaDBIsolation checks the isolation levels: a write sees rows that others commit meanwhile; a read has one
// snapshot.
func TestMariaDBIsolation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, mariadbConfig(t))
	store := f.ledger.tables.Store
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
	require.True(t, refusesWrites(err), "%v", err)
	require.NoError(t, store.Read(t.Context(), func(x db.Txn) error {
		require.EqualValues(t, 2, look(x))
		return nil
	}))
}

// TestMariaDBRefused gives a real server unsafe settings (F39, B48). Open refuses the server, and so does a worker that
// is already running.
func TestMariaDBRefused(t *testing.T) {
	t.Parallel()
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{Settings: map[string]string{"log_bin": "binlog",
		"innodb_doublewrite": "on"}})
	name := server.Database(t)
	admin := mariadb(t, server.AdminDSN(name))
	config := testConfig(mysql.Database{DSN: server.DSN(name)})
	f := newFixture(t, config)
	f.create(t, "rain", 100)
	root := config
	root.Database = mysql.Database{DSN: server.AdminDSN(name)} // root may write even to a read-only server
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
	config.Database = mysql.Database{DSN: server.DSN(name),
		UnsafeAllow: []string{"innodb_flush_log_at_trx_commit", "sync_binlog"}}
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
	require.True(t, refusesWrites(errs[0]), "%v", errs[0])
	errs = f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	var refused *db.SettingError
	require.ErrorAs(t, errs[0], &refused, "the store discards the connection and checks the next one")
	execute(t, admin, "SET GLOBAL read_only = OFF")
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))

	execute(t, admin, "SET GLOBAL read_only = ON")
	_, err := kept.Of(f.ledger.tables).Live(t.Context())
	require.True(t, refusesWrites(err), "a former primary may have keys that were revoked since: %v", err)
	_, err = kept.Of(f.ledger.tables).Live(t.Context())
	require.ErrorAs(t, err, &refused, "the store discards the connection and checks the next one")
}

// TestMigrationKilledAnywhere cuts the connection of a migration after the server has executed a message, for each
// message in turn. The next migration finishes the work.
func TestMigrationKilledAnywhere(t *testing.T) {
	t.Parallel()
	steps := mysql.Database{}.Dialect().Migrations
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
			require.NoError(t, mariadb(t, config.dsn()).QueryRowContext(t.Context(),
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
	conn := mariadb(t, config.dsn())
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
