package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// mirrored is a PostgreSQL with a hot standby that each commit waits for.
type mirrored struct {
	*fixture
	primary, standby *testkit.PostgresServer
	database         string
}

func newMirrored(t *testing.T) *mirrored {
	t.Helper()
	m := &mirrored{primary: testkit.NewPostgres(t, testkit.PostgresOptions{})}
	m.standby = m.primary.NewStandby(t, testkit.PostgresOptions{})
	var err error
	m.database, err = m.primary.CreateDatabase(t.Context())
	require.NoError(t, err)
	config := testPostgres(m.primary.DSN(m.database))
	config.Timeout, config.LockTimeout, config.Retries = time.Second, 500*time.Millisecond, 2
	m.fixture = newFixture(t, config)
	m.command(t, m.primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
	m.command(t, m.primary, "CREATE TABLE waits (id bigint)") // returns once the standby has it
	m.replicates(t)
	return m
}

// command runs statements on a server, outside of a transaction.
func (m *mirrored) command(t *testing.T, server *testkit.PostgresServer, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN(m.database))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, s := range statements {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// replicates waits until commits wait for the standby.
func (m *mirrored) replicates(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		return m.count(t, `SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	}, "the standby is synchronous")
}

// promote ends the primary, and returns a fixture on the standby, which has become the primary.
func (m *mirrored) promote(t *testing.T) *fixture {
	t.Helper()
	require.NoError(t, m.primary.Kill())
	require.NoError(t, m.standby.Restart())
	m.command(t, m.standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_promote()")
	config := m.config
	config = config.at(m.standby.DSN(m.database))
	return newFixture(t, config)
}

// A commit that the standby lacks is visible on the primary once the wait for the standby has ended. A repeat finds
// it, writes nothing, and must wait for the standby all the same: otherwise a promotion would lose what was told.
func TestPostgresTellsOnlyWhatTheStandbyHas(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(t, "rain", 100)
	m.create(t, "snow", 10)
	_, err := m.ledger.Fund(t.Context(), model.Funding{Client: "shop", Currency: testCurrency, Amount: 1000, ID: "f1",
		Decision: by("ann", "test")})
	require.NoError(t, err)
	require.NoError(t, m.standby.Kill())
	entry := access.Entry{ID: "e1", Time: time.Now(), Who: "ann", Action: access.CreateCampaign,
		Outcome: access.OutcomeDone}
	credit := payment.Credit{Client: "shop", Key: "k", Reference: "r", Account: "u1", Currency: testCurrency, Amount: 5}
	ops := map[string]func(context.Context) error{
		"settle": func(ctx context.Context) error {
			for _, err := range m.Handle(ctx, testkit.Batch(grantsOf("rain", 1, 20))) {
				return err
			}
			return nil
		},
		"create": func(ctx context.Context) error {
			_, err := m.ledger.CreateCampaign(ctx, testCampaign(t, "wind", 10))
			return err
		},
		"load":    func(ctx context.Context) error { return m.ledger.BeginLoad(ctx, "snow") },
		"journal": func(ctx context.Context) error { return kept.Of(m.ledger.tables).Record(ctx, entry) },
		"credit": func(ctx context.Context) error {
			_, err := m.ledger.Credit(ctx, []payment.Credit{credit})
			return err
		},
		"look up a credit": func(ctx context.Context) error {
			_, _, err := m.ledger.CreditByReference(ctx, "shop", "r")
			return err
		},
		"deal a top-up": m.ledger.Replicated,
	}
	var running sync.WaitGroup
	for name, op := range ops {
		running.Go(func() {
			for range 2 { // the first call writes; the second finds what it wrote
				assert.Error(t, op(t.Context()), "%s was told, and the standby does not have it", name)
			}
		})
	}
	running.Wait()
	require.Positive(t, m.count(t, `SELECT COUNT(*) FROM grants`), "the commits are visible on the primary")

	f := m.promote(t)
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM grants`))
	f.settles(t, grantsOf("rain", 1, 20)...)
	f.holds(t, "rain", grantsOf("rain", 1, 20))
}

// The wait for the standby also ends without an error, for example when an administrator cancels the statement.
func TestPostgresWarningDuringCommitIsUnknown(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(t, "rain", 100)
	m.config.Timeout = 20 * time.Second
	m.fixture = newFixture(t, m.config)
	require.NoError(t, m.standby.Kill())
	stop := testkit.Go(t, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, m.config.dsn())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for ctx.Err() == nil {
			_, err = conn.Exec(context.WithoutCancel(ctx), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep'`)
			if err != nil {
				return err
			}
		}
		return nil
	})
	for range 2 {
		errs := m.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
		require.Len(t, errs, 5)
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]), "%v", errs[0])
		require.True(t, hongbao.IsOutage(errs[0]))
	}
	stop()
	require.NoError(t, m.standby.Restart())
	m.replicates(t)
	m.settles(t, grantsOf("rain", 1, 5)...)
	m.holds(t, "rain", grantsOf("rain", 1, 5))
}

// A role change may leave the connections to the old primary open, which has become read-only. The ledger then neither
// writes nor decides there: it finds the new primary.
func TestPostgresLeavesAServerThatIsNoLongerThePrimary(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	hosts := fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		m.primary.Addr, m.standby.Addr, m.database)
	m.config = m.config.at(hosts)
	m.fixture = newFixture(t, m.config)
	m.create(t, "rain", 100)
	m.settles(t, grantsOf("rain", 1, 5)...)
	drawn, _ := access.NewKey(access.RoleOperator, []string{"rain"})
	k, err := kept.Of(m.ledger.tables).AddKey(t.Context(), drawn)
	require.NoError(t, err)

	m.command(t, m.primary, "ALTER SYSTEM RESET synchronous_standby_names",
		"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	m.command(t, m.standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_promote()")
	config := m.config
	config = config.at(m.standby.DSN(m.database))
	after := open(t, config)
	_, err = kept.Of(after.tables).RevokeKey(t.Context(), k.ID)
	require.NoError(t, err)

	testkit.EventuallyOK(t, 10*time.Second, func() error {
		live, err := kept.Of(m.ledger.tables).Live(t.Context())
		if err == nil && len(live.Keys) > 0 {
			err = errors.New("the revoked key is accepted")
		}
		return err
	}, "the revoked key is refused")
	testkit.EventuallyOK(t, 10*time.Second, func() error {
		return errors.Join(m.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 10)))...)
	}, "the ledger settles on the new primary")
	m.holds(t, "rain", grantsOf("rain", 1, 10))
}
