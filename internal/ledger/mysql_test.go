package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// mariadb opens one connection that the test itself uses.
func mariadb(t *testing.T, dsn string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(conn.Close(), db.Close())) })
	return conn
}

// refusesWrites reports whether an error says that the server or the transaction is read-only.
func refusesWrites(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains([]uint16{1290, 1792, 1836}, e.Number)
}

func execute(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := conn.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// killOtherMariaDB ends every other connection to the database, and returns their number.
func killOtherMariaDB(ctx context.Context, conn *sql.Conn) (int64, error) {
	ids, err := otherMariaDB(ctx, conn)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		_, err := conn.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id))
		var gone *mysql.MySQLError
		if errors.As(err, &gone) && gone.Number == 1094 { // the session has ended meanwhile
			continue
		}
		if err != nil {
			return 0, err
		}
	}
	return int64(len(ids)), nil
}

func otherMariaDB(ctx context.Context, conn *sql.Conn) (ids []int64, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT id FROM information_schema.processlist
		WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// mariadbBehindProxy returns a proxy in front of a database, and the configuration that uses it.
func mariadbBehindProxy(t *testing.T) (*proxy.Proxy, Config) {
	t.Helper()
	dsn, err := mysql.ParseDSN(testkit.MariaDB(t))
	require.NoError(t, err)
	proxy := testkit.NewProxy(t, dsn.Addr)
	dsn.Addr = proxy.Addr
	return proxy, testMariaDB(fmt.Sprintf("%s@tcp(%s)/%s", dsn.User, dsn.Addr, dsn.DBName))
}

// TestMariaDBFewStatements counts the statements that the server executes for a batch of 2,000 grants.
func TestMariaDBFewStatements(t *testing.T) {
	t.Parallel()
	config := mariadbConfig(t)
	config.Conns = 1 // the server counts statements by session
	f := newFixture(t, config)
	f.create(t, "rain", 2_000)
	asked := func() (n int64) {
		err := f.ledger.tables.Store.Read(t.Context(), func(x db.Txn) error {
			return x.Query(t.Context(), `SHOW SESSION STATUS LIKE 'Questions'`, nil, func(s db.Scan) error {
				var name string
				return s(&name, &n)
			})
		})
		require.NoError(t, err)
		return n
	}
	look := asked()
	look = asked() - look
	f.settles(t, grant("rain", 1)) // so that the settler has cached the campaign
	before := asked()
	f.settles(t, grantsOf("rain", 2, 2_000)...)
	n := asked() - before - look
	require.Positive(t, n)
	require.LessOrEqual(t, n, int64(13), "isolation, begin, lowest, fences, decided, insert, credit, transfer, pool, campaign, decided, epoch, commit")
	f.holds(t, "rain", grantsOf("rain", 1, 2_000))
}

// TestMariaDBServerKilled kills the server while batches are settled: no confirmed grant is lost, and no grant is paid
// twice.
func TestMariaDBServerKilled(t *testing.T) {
	t.Parallel()
	const packets, kills = 2_000, 3
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{})
	f := newFixture(t, testMariaDB(server.DSN(server.Database(t))))
	f.create(t, "rain", packets)
	var confirmed, failed atomic.Int64
	var group errgroup.Group
	group.Go(func() error {
		for first := int64(1); first < packets; first += 10 {
			for {
				errs := f.Handle(context.Background(), testkit.Batch(grantsOf("rain", first, first+9)))
				if errs == nil {
					break
				}
				failed.Add(1)
				if !hongbao.IsOutage(errs[0]) {
					return errs[0]
				}
			}
			confirmed.Add(10)
		}
		return nil
	})
	for range kills {
		more := confirmed.Load() + 100
		testkit.Eventually(t, 20*time.Second, func() bool { return confirmed.Load() >= min(more, packets) },
			"settling continues")
		require.NoError(t, server.Restart())
	}
	require.NoError(t, group.Wait())
	require.Positive(t, failed.Load(), "no batch failed while the server was down")
	f.holds(t, "rain", grantsOf("rain", 1, packets))
	require.Empty(t, f.open(t))
}
