package settlement

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// killOthers ends every other connection to the database, and tells how many there were.
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

// TestBackendKilled ends the connection in the middle of a transaction (F32): nothing has happened, and the same
// batch again is settled.
func TestBackendKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	killer := connect(t, f.config.DSN)
	inner := f.ledger.store
	var killed int64
	f.ledger.store = &tap{store: inner, beforeCommit: func(ctx context.Context) {
		n, err := killOthers(ctx, killer)
		require.NoError(t, err)
		killed += n
		testkit.EventuallyOK(t, 10*time.Second, func() error { // until the server has let go of it
			if n, err := killOthers(ctx, killer); n != 0 || err != nil {
				return errors.Join(errors.New("still there"), err)
			}
			return nil
		}, "the backend is gone")
	}}
	errs := f.Handle(t.Context(), grantsOf("rain", 1, 5))
	require.Positive(t, killed)
	require.Len(t, errs, 5)
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err), "%v", err)
	}
	f.ledger.store = inner
	f.holds(t, "rain", nil)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestBackendsKilledAtRandom has settlers repeat their batches while connections are killed all the time (F32).
func TestBackendsKilledAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	const packets, kills = 3_000, 25
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", packets)
	killer := connect(t, f.config.DSN)
	var failed, killed atomic.Int64
	var done atomic.Bool
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			for !done.Load() { // the same grants over and over, until enough was killed
				for first := int64(1); first < packets; first += 100 {
					for {
						errs := f.Handle(context.Background(), grantsOf("rain", first, first+99))
						if errs == nil {
							break
						}
						failed.Add(1)
						if !hongbao.IsOutage(errs[0]) {
							return errs[0]
						}
					}
				}
			}
			return nil
		})
	}
	testkit.EventuallyOK(t, time.Minute, func() error {
		n, err := killOthers(t.Context(), killer)
		require.NoError(t, err)
		if killed.Add(n) < kills || failed.Load() < kills/2 {
			return errors.New("not yet enough")
		}
		return nil
	}, "connections are killed and batches fail")
	done.Store(true)
	require.NoError(t, group.Wait())
	f.holds(t, "rain", grantsOf("rain", 1, packets))
	require.Zero(t, f.balance(t, PoolAccount("rain")))
}

// behindProxy is a database that is reached through a proxy.
func behindProxy(t *testing.T) (*testkit.Proxy, Config) {
	t.Helper()
	u, err := url.Parse(testkit.Postgres(t))
	require.NoError(t, err)
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return proxy, testPostgres(u.String())
}

// isCommit tells a message that executes COMMIT: pgx prepares each statement once, under a name that is a hash.
func isCommit(request []byte) bool {
	sum := sha256.Sum256([]byte("commit"))
	name := "stmtcache_" + hex.EncodeToString(sum[:24])
	return bytes.Contains(request, []byte(name)) && !bytes.Contains(request, []byte("commit\x00"))
}

// TestCommitAnswerLost loses the answer to COMMIT: it may have happened, and the batch again gives the right result.
func TestCommitAnswerLost(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	proxy, config := behindProxy(t)
	f := newFixture(t, config)
	f.create(t, "rain", 20)
	f.settles(t, grantsOf("rain", 1, 5)...)
	proxy.SwallowAnswers(1, isCommit)
	errs := f.Handle(t.Context(), grantsOf("rain", 4, 12))
	require.Equal(t, 1, proxy.Fired().Swallowed, "the fault did not happen")
	require.Len(t, errs, 9)
	for _, err := range errs {
		require.Equal(t, hongbao.Unknown, hongbao.ClassOf(err), "%v", err)
		require.True(t, hongbao.IsOutage(err))
	}
	f.holds(t, "rain", grantsOf("rain", 1, 12)) // it did happen
	f.settles(t, grantsOf("rain", 4, 12)...)
	f.holds(t, "rain", grantsOf("rain", 1, 12))
	require.Empty(t, f.open(t))
}

// TestServerOutOfReach settles nothing and says that it is an outage, then settles.
func TestServerOutOfReach(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	proxy, config := behindProxy(t)
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	proxy.Refuse(true)
	proxy.CutAll()
	for range 2 {
		errs := f.Handle(t.Context(), grantsOf("rain", 1, 5))
		require.Len(t, errs, 5)
		require.True(t, hongbao.IsOutage(errs[0]))
	}
	errs := f.Handle(t.Context(), grantsOf("rain", 1, 5))
	require.Equal(t, hongbao.Transient, hongbao.ClassOf(errs[0]), "%v", errs[0])
	require.Positive(t, proxy.Fired().Refused)
	proxy.Refuse(false)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestPostgresRefused has a real server with settings that lose money (F39).
func TestPostgresRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
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
		"application_name=x":               "fsync", // testkit's servers have it off
	} {
		config := testPostgres(with(option))
		if setting == "fsync" {
			config.UnsafeAllow = nil
		}
		_, err := Open(t.Context(), config)
		var refused *SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
		require.NotEmpty(t, refused.Mend)
		require.ErrorContains(t, err, setting+" is ")
	}
	config := testPostgres(with("synchronous_commit=off"))
	config.UnsafeAllow = UnsafeSettings()
	open(t, config)
}

// TestReadOnlyServer has the server turn read-only, as after a failover: an outage, and nothing is lost.
func TestReadOnlyServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	u, err := url.Parse(f.config.DSN)
	require.NoError(t, err)
	admin := connect(t, f.config.DSN)
	name := pgx.Identifier{u.Path[1:]}.Sanitize()
	_, err = admin.Exec(t.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	require.NoError(t, err)
	_, err = killOthers(t.Context(), admin)
	require.NoError(t, err)
	testkit.Eventually(t, 10*time.Second, func() bool {
		errs := f.Handle(t.Context(), grantsOf("rain", 1, 5))
		require.Len(t, errs, 5)
		require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
		var pg *pgconn.PgError
		return errors.As(errs[0], &pg) && pg.Code == "25006" && hongbao.ClassOf(errs[0]) == hongbao.Transient
	}, "the server says that it is read-only")
	_, err = admin.Exec(t.Context(), "SET default_transaction_read_only = off; ALTER DATABASE "+name+" RESET default_transaction_read_only")
	require.NoError(t, err)
	_, err = killOthers(t.Context(), admin)
	require.NoError(t, err)
	testkit.Eventually(t, 10*time.Second, func() bool {
		return f.Handle(t.Context(), grantsOf("rain", 1, 5)) == nil
	}, "the server takes writes again")
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestLockTimeout has another session hold the pool's row for too long.
func TestLockTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	config := postgresConfig(t)
	config.LockTimeout, config.Retries = 20*time.Millisecond, 2
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	holder := connect(t, config.DSN)
	_, err := holder.Exec(t.Context(), "BEGIN; SELECT * FROM account WHERE id = 'pool:rain' FOR UPDATE")
	require.NoError(t, err)
	errs := f.Handle(t.Context(), grantsOf("rain", 1, 5))
	require.Len(t, errs, 5)
	require.Equal(t, hongbao.Transient, hongbao.ClassOf(errs[0]), "%v", errs[0])
	require.ErrorIs(t, errs[0], errAgain)
	_, err = holder.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}
