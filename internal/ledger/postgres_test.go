package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// killOthers ends every other connection to the database and returns their number.
func killOthers(ctx context.Context, conn *pgx.Conn) (int64, error) {
	tag, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	return tag.RowsAffected(), err
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

// behindProxy returns a proxy in front of a database, and the configuration that uses it.
func behindProxy(t *testing.T) (*proxy.Proxy, Config) {
	t.Helper()
	u, err := url.Parse(testkit.Postgres(t))
	require.NoError(t, err)
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return proxy, testPostgres(u.String())
}

// isCommit reports whether a message executes COMMIT. pgx prepares each statement once, under a name that is a hash.
func isCommit(request []byte) bool {
	sum := sha256.Sum256([]byte("commit"))
	name := "stmtcache_" + hex.EncodeToString(sum[:24])
	return bytes.Contains(request, []byte(name)) && !bytes.Contains(request, []byte("commit\x00"))
}

// TestPostgresRefused opens a real server with unsafe settings (F39).
func TestPostgresRefused(t *testing.T) {
	t.Parallel()
	with := func(option string) string {
		u, err := url.Parse(testkit.Postgres(t))
		require.NoError(t, err)
		q := u.Query()
		q.Set("options", "--"+option)
		u.RawQuery = q.Encode()
		return u.String()
	}
	for option, setting := range map[string]string{
		"synchronous_commit=off":           "synchronous_commit",
		"default_transaction_read_only=on": "default_transaction_read_only",
		"application_name=x":               "fsync", // testkit's servers run with fsync off
	} {
		config := testPostgres(with(option))
		if setting == "fsync" {
			config.Database = postgres.Database{DSN: config.dsn()}
		}
		_, err := Open(t.Context(), config)
		var refused *db.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
		require.False(t, hongbao.IsOutage(err), "an operator has to change the setting")
		require.NotEmpty(t, refused.Fix)
		require.ErrorContains(t, err, setting+" is ")
	}
	open(t, testConfig(postgres.Database{DSN: with("synchronous_commit=off"), UnsafeAllow: postgres.Unsafe()}))
}

// TestReadOnlyServer makes the server read-only, as a failover may. The settler reports an outage, and no grant is
// lost.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	u, err := url.Parse(f.config.dsn())
	require.NoError(t, err)
	admin := connect(t, f.config.dsn())
	name := pgx.Identifier{u.Path[1:]}.Sanitize()
	_, err = admin.Exec(t.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	require.NoError(t, err)
	_, err = killOthers(t.Context(), admin)
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
		require.Len(t, errs, 5)
		require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
		var refused *db.SettingError
		return errors.As(errs[0], &refused) && refused.Setting == "default_transaction_read_only" &&
			hongbao.ClassOf(errs[0]) == hongbao.ClassTransient
	}, "new connections are refused")
	_, err = admin.Exec(t.Context(), "SET default_transaction_read_only = off; ALTER DATABASE "+name+" RESET "+
		"default_transaction_read_only")
	require.NoError(t, err)
	_, err = killOthers(t.Context(), admin)
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		return f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5))) == nil
	}, "the server takes writes again")
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestPostgresGatesEachConnection makes the settings of a running server unsafe, as a failover to another server may.
// The ledger refuses new connections and settles nothing.
func TestPostgresGatesEachConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	u, err := url.Parse(f.config.dsn())
	require.NoError(t, err)
	admin := connect(t, f.config.dsn())
	name := pgx.Identifier{u.Path[1:]}.Sanitize()
	_, err = admin.Exec(t.Context(), "ALTER DATABASE "+name+" SET synchronous_commit = off")
	require.NoError(t, err)
	_, err = killOthers(t.Context(), admin)
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
		require.Len(t, errs, 5)
		require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
		var refused *db.SettingError
		return errors.As(errs[0], &refused) && refused.Setting == "synchronous_commit"
	}, "the connection is refused")
	_, err = admin.Exec(t.Context(), "ALTER DATABASE "+name+" RESET synchronous_commit")
	require.NoError(t, err)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestWorkerNeedsNoDDL runs a worker as a database user who may change rows, but may not create tables.
func TestWorkerNeedsNoDDL(t *testing.T) {
	t.Parallel()
	config := postgresConfig(t)
	steps, err := Migrate(t.Context(), config)
	require.NoError(t, err)
	require.NotEmpty(t, steps)
	admin := connect(t, config.dsn())
	u, err := url.Parse(config.dsn())
	require.NoError(t, err)
	worker := "worker_" + strings.ToLower(rand.Text())
	for _, sql := range []string{"CREATE ROLE " + worker + " LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + worker} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	u.User = url.User(worker)
	config = config.at(u.String())
	_, err = connect(t, config.dsn()).Exec(t.Context(), "CREATE TABLE mine (id bigint)")
	require.ErrorContains(t, err, "permission denied")

	steps, err = Migrate(t.Context(), config)
	require.NoError(t, err, "no step is missing, so the migration creates nothing")
	require.Empty(t, steps)
	f := newFixture(t, config)
	_, err = f.ledger.Initialize(t.Context(), Deployment{ID: "prod", KeyPrefix: "hb", Shards: 1})
	require.NoError(t, err)
	require.NoError(t, f.ledger.SetShard(t.Context(), 0, 0, ShardState{Epoch: 1}))
	f.create(t, "rain", 3)
	forged := grant("rain", 3)
	forged.Amount++
	f.settles(t, append(grantsOf("rain", 1, 2), forged)...)
	require.Len(t, f.open(t), 1)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// watchTrips runs fn and returns the number of statements in each round trip within a transaction. It also returns how
// many transactions were retried.
func watchTrips(f *fixture, fn func()) (trips []int, again int) {
	inner := f.ledger.tables.Store
	f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Run: func(stmts int) { trips = append(trips, stmts) },
		Query: func(context.Context, string, int) { trips = append(trips, 1) }}
	f.ledger.tables.Observe = func(_ string, _ time.Duration, lost bool, _ error) {
		if lost {
			again++
		}
	}
	fn()
	f.ledger.tables.Store, f.ledger.tables.Observe = inner, nil
	return trips, again
}

// A batch of new grants takes three round trips. The first has BEGIN and the queries for the shard and the decisions.
// The second is COPY. The third has the statements that move money, the checks of the decisions and of the shard's epoch,
// and COMMIT.
func TestPostgresSettlesInThreeRoundTrips(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	f.settles(t, grant("rain", 1)) // so that the settler has cached the campaign
	trips, again := watchTrips(f, func() { f.settles(t, grantsOf("rain", 2, 9)...) })
	require.Equal(t, []int{2, 1, 6}, trips)
	require.Zero(t, again)
	f.holds(t, "rain", grantsOf("rain", 1, 9))
}

// An operator has decided about a grant of a campaign. The settler then skips decided grants before it copies the
// others, and no transaction is rolled back.
func TestPostgresLooksBeforeItCopies(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	f.settles(t, grant("rain", 1))
	f.settles(t, secondOf(1, "bea"))
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: f.open(t)[0].ID, Decision: by("ann", "forged")}, nil)
	require.NoError(t, err)
	trips, again := watchTrips(f, func() { f.settles(t, append(grantsOf("rain", 2, 9), secondOf(1, "bea"))...) })
	require.Zero(t, again, "transactions that were rolled back")
	require.Equal(t, []int{2, 1, 1, 6}, trips, "the first queries, the query for decided grants, COPY, the money")
	require.Empty(t, f.open(t))
	f.holds(t, "rain", grantsOf("rain", 1, 9))
}

// PostgreSQL refuses COPY into a table with row-level security, so the second try uses INSERT.
func TestPostgresSettlesUnderRowSecurity(t *testing.T) {
	t.Parallel()
	config := postgresConfig(t)
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	admin := connect(t, config.dsn())
	u, err := url.Parse(config.dsn())
	require.NoError(t, err)
	worker := "worker_" + strings.ToLower(rand.Text())
	for _, sql := range []string{"CREATE ROLE " + worker + " LOGIN",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + worker,
		"ALTER TABLE grants ENABLE ROW LEVEL SECURITY", "CREATE POLICY everything ON grants USING (true)"} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	u.User = url.User(worker)
	config = config.at(u.String())
	f = newFixture(t, config)
	_, again := watchTrips(f, func() { f.settles(t, grantsOf("rain", 1, 5)...) })
	require.Equal(t, 1, again, "the COPY was not refused")
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}
