package ledger

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// faulty is a database server with the hooks that the fault cases need.
type faulty struct {
	config      backend
	behindProxy func(*testing.T) (*proxy.Proxy, Config)
	// loseCommit makes the proxy drop the next response to a COMMIT.
	loseCommit func(*proxy.Proxy)
	connect    func(t *testing.T, dsn string) session
	// begun is a query that counts the other sessions with an open transaction. On MariaDB it also counts idle sessions,
	// which the connection pool closes.
	begun string
	// packets is the number of grants that a test settles repeatedly. kills is the number of connections that it kills
	// meanwhile.
	packets, kills int64
}

// session is a connection that the test itself uses.
type session struct {
	execute func(statements ...string)
	// killOthers ends every other connection to the database and returns their number.
	killOthers func(context.Context) (int64, error)
}

func TestPostgresFaults(t *testing.T) {
	faults(t, &faulty{
		config: postgresConfig, behindProxy: behindProxy, packets: 3_000, kills: 25,
		loseCommit: func(p *proxy.Proxy) { p.SwallowAnswers(1, isCommit) },
		begun:      `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`,
		connect: func(t *testing.T, dsn string) session {
			conn := connect(t, dsn)
			return session{
				execute: func(statements ...string) {
					for _, s := range statements {
						_, err := conn.Exec(t.Context(), s)
						require.NoError(t, err, s)
					}
				},
				killOthers: func(ctx context.Context) (int64, error) { return killOthers(ctx, conn) },
			}
		},
	})
}

func TestMariaDBFaults(t *testing.T) {
	faults(t, &faulty{
		config: mariadbConfig, behindProxy: mariadbBehindProxy, packets: 1_000, kills: 15,
		begun: `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`,
		loseCommit: func(p *proxy.Proxy) {
			p.SwallowWholeAnswers(1, func(request []byte) bool { return bytes.HasSuffix(request, []byte("\nCOMMIT")) },
				testkit.MySQLAnswered)
		},
		connect: func(t *testing.T, dsn string) session {
			conn := mariadb(t, dsn)
			return session{
				execute:    func(statements ...string) { execute(t, conn, statements...) },
				killOthers: func(ctx context.Context) (int64, error) { return killOtherMariaDB(ctx, conn) },
			}
		},
	})
}

func faults(t *testing.T, s *faulty) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, *faulty){
		"a connection is killed (F32)":           testConnectionKilled,
		"connections are killed at random (F32)": testConnectionsKilledAtRandom,
		"the answer to COMMIT is lost":           testCommitAnswerLost,
		"the server is out of reach":             testOutOfReach,
		"another session holds a lock for long":  testLockTimeout,
		"a request's answer is lost":             testOnceAnswerLost,
		"a worker is stopped before COMMIT":      testStoppedBeforeCommit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, s)
		})
	}
}

// testConnectionKilled kills the connection in the middle of a transaction. No grant is settled until the batch is
// repeated.
func testConnectionKilled(t *testing.T, s *faulty) {
	f := newFixture(t, s.config(t))
	f.create(t, "rain", 10)
	killer := s.connect(t, f.config.dsn())
	inner := f.ledger.tables.Store
	var killed int64
	f.ledger.tables.Store = &tap{Store: inner, beforeCommit: func(ctx context.Context) {
		testkit.EventuallyOK(t, 30*time.Second, func() error { // until the server has ended the session
			n, err := killer.killOthers(ctx)
			if killed += n; n != 0 || err != nil {
				return errors.Join(errors.New("still there"), err)
			}
			return nil
		}, "the connection is gone")
	}}
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	require.Positive(t, killed)
	require.Len(t, errs, 5)
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err), "%v", err)
	}
	f.ledger.tables.Store = inner
	f.holds(t, "rain", nil)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

func testConnectionsKilledAtRandom(t *testing.T, s *faulty) {
	f := newFixture(t, s.config(t))
	f.create(t, "rain", s.packets)
	killer := s.connect(t, f.config.dsn())
	var failed, killed atomic.Int64
	var done atomic.Bool
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			for !done.Load() { // until enough connections were killed
				for first := int64(1); first < s.packets; first += 100 {
					for {
						errs := f.Handle(context.Background(), testkit.Batch(grantsOf("rain", first, first+99)))
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
		n, err := killer.killOthers(t.Context())
		require.NoError(t, err)
		if killed.Add(n) < s.kills || failed.Load() < s.kills/2 {
			return errors.New("not yet enough")
		}
		return nil
	}, "connections are killed and batches fail")
	done.Store(true)
	require.NoError(t, group.Wait())
	f.holds(t, "rain", grantsOf("rain", 1, s.packets))
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
}

// testCommitAnswerLost loses the response to COMMIT. The batch is committed, and repeating it succeeds.
func testCommitAnswerLost(t *testing.T, s *faulty) {
	proxy, config := s.behindProxy(t)
	f := newFixture(t, config)
	f.create(t, "rain", 20)
	f.settles(t, grantsOf("rain", 1, 5)...)
	s.loseCommit(proxy)
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 4, 12)))
	require.Equal(t, 1, proxy.Fired().Swallowed, "the fault did not happen")
	require.Len(t, errs, 9)
	for _, err := range errs {
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
		require.True(t, hongbao.IsOutage(err))
	}
	f.holds(t, "rain", grantsOf("rain", 1, 12)) // COMMIT did succeed
	f.settles(t, grantsOf("rain", 4, 12)...)
	f.holds(t, "rain", grantsOf("rain", 1, 12))
	require.Empty(t, f.open(t))
}

// testOutOfReach checks that a settler settles nothing and reports an outage while the server is unreachable, and
// settles afterwards.
func testOutOfReach(t *testing.T, s *faulty) {
	proxy, config := s.behindProxy(t)
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	proxy.Refuse(true)
	proxy.CutAll()
	for range 3 {
		errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
		require.Len(t, errs, 5)
		require.True(t, hongbao.IsOutage(errs[0]))
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]), "%v", errs[0])
	}
	require.Positive(t, proxy.Fired().Refused)
	proxy.Refuse(false)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// testLockTimeout lets another session hold the lock of the pool's row for too long.
func testLockTimeout(t *testing.T, s *faulty) {
	config := s.config(t)
	config.LockTimeout, config.Retries = 20*time.Millisecond, 1 // MariaDB rounds LockTimeout up to a second
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	holder := s.connect(t, config.dsn())
	holder.execute("BEGIN", "UPDATE account SET balance = balance - 1 WHERE id = 'pool:rain'")
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	require.Len(t, errs, 5)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]), "%v", errs[0])
	require.ErrorIs(t, errs[0], db.ErrAgain)
	require.True(t, hongbao.IsOutage(errs[0]), "an outage counts no attempt")
	holder.execute("ROLLBACK")
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// testStoppedBeforeCommit stops a worker after it has inserted its grants. A fence does not wait for the worker's
// transaction, which the server ends. When the batch is repeated, the fence leaves out the grants above its floor.
func testStoppedBeforeCommit(t *testing.T, s *faulty) {
	config := s.config(t)
	config.Timeout, config.LockTimeout = 6*time.Second, 3*time.Second
	f := newFixture(t, config)
	f.opened(t, 10)
	inner := f.ledger.tables.Store
	f.ledger.tables.Store = &tap{Store: inner, beforeCommit: func(context.Context) {
		f.ledger.tables.Store = inner
		require.Positive(t, f.count(t, s.begun))
		f.fence(t, 2, 2)
		lost, err := f.ledger.LostEvents(t.Context(), 3, 2)
		require.NoError(t, err)
		require.Equal(t, Lost{}, lost)
		require.Positive(t, f.count(t, s.begun), "the fence does not wait for the transaction")
		testkit.Eventually(t, 40*time.Second, func() bool { return f.count(t, s.begun) == 0 }, "the server ends it")
	}}
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
	require.Len(t, errs, 5)
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.NotErrorIs(t, errs[0], ErrFenced)
	f.holds(t, "rain", nil)
	f.leavesOut(t, grantsOf("rain", 1, 5), 3, 4, 5)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}
