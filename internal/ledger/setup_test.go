package ledger

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// backend returns the configuration of a new, empty database.
type backend func(t testing.TB) Config

func sqliteConfig(t testing.TB) Config { return testConfig(ledgertest.SQLite(t)) }

func postgresConfig(t testing.TB) Config { return testConfig(ledgertest.Postgres(t)) }

func testPostgres(dsn string) Config { return testConfig(ledgertest.PostgresAt(dsn)) }

func mariadbConfig(t testing.TB) Config { return testConfig(ledgertest.MariaDB(t)) }

func testMariaDB(dsn string) Config { return testConfig(ledgertest.MariaDBAt(dsn)) }

func testConfig(d db.Database) Config {
	return Config{Database: d, Retries: ledgertest.Retries, Limits: ledgertest.Limits()}
}

// dsn returns the place of the database.
func (c *Config) dsn() string {
	switch d := c.Database.(type) {
	case postgres.Database:
		return d.DSN
	case mysql.Database:
		return d.DSN
	default:
		return d.(sqlite.Database).Path
	}
}

// kind returns the name of the database's kind.
func (c *Config) kind() string { return c.Database.Dialect().Name }

// at returns the configuration of another database on a server of the same kind.
func (c *Config) at(dsn string) Config {
	other := *c
	switch d := c.Database.(type) {
	case postgres.Database:
		d.DSN = dsn
		other.Database = d
	case mysql.Database:
		d.DSN = dsn
		other.Database = d
	}
	return other
}

func open(t testing.TB, c Config) *Ledger {
	t.Helper()
	_, err := Migrate(t.Context(), c)
	require.NoError(t, err)
	l, err := Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// fixture is a ledger with a settler in front of it.
type fixture struct {
	config Config
	ledger *Ledger
	*Settler

	mu        sync.Mutex
	reported  []model.Quarantined
	hooked    int // number of calls of OnQuarantine
	hookFails error
	// forged has packets for which the plan returns a wrong amount, so that forged grants pass the plan and reach later
	// checks.
	forged map[packetKey]hongbao.Amount
}

const testCurrency = ledgertest.Currency

// The campaigns and grants of the tests.
var (
	planned   = ledgertest.Planned
	fundedFor = ledgertest.FundedFor
	grant     = ledgertest.Grant
	grantsOf  = ledgertest.Grants
	secondOf  = ledgertest.SecondOf
	closeOf   = ledgertest.Close
)

func newFixture(t testing.TB, config Config) *fixture {
	t.Helper()
	f := &fixture{config: config, ledger: open(t, config), forged: make(map[packetKey]hongbao.Amount)}
	var err error
	f.Settler, err = NewSettler(SettlerConfig{
		Ledger: f.ledger, Log: zap.NewNop(),
		Plan: ledgertest.Plan(func(campaign string, packet int64) (hongbao.Amount, bool, error) {
			if a, ok := f.forged[packetKey{campaign, packet}]; ok {
				return a, true, nil
			}
			return planned(packet), true, nil
		}),
		OnQuarantine: func(q model.Quarantined) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.hooked++
			if q.ID != 0 {
				f.reported = append(f.reported, q)
			}
			return f.hookFails
		},
	})
	require.NoError(t, err)
	return f
}

func testCampaign(t testing.TB, id string, packets int64) Campaign {
	t.Helper()
	return canonical(t, ledgertest.Spec(id, packets))
}

func canonical(t testing.TB, spec hongbao.Campaign) Campaign {
	t.Helper()
	return Campaign(ledgertest.Canonical(t, spec))
}

func (f *fixture) create(t testing.TB, id string, packets int64) {
	t.Helper()
	_, err := f.ledger.CreateCampaign(t.Context(), testCampaign(t, id, packets))
	require.NoError(t, err)
}

func (f *fixture) settles(t rapid.TB, grants ...hongbao.Grant) {
	t.Helper()
	ledgertest.Settle(t, f, grants...)
}

func by(who, why string) stream.Decision { return stream.Decision{By: who, Why: why} }

func (f *fixture) disown(t require.TestingT, campaign string) {
	require.NoError(t, f.ledger.Disown(context.Background(), campaign, by("ann", "it will never exist")))
}

// holds checks that the ledger is consistent and has exactly the given grants of the campaign.
func (f *fixture) holds(t testing.TB, campaign string, want []hongbao.Grant) {
	t.Helper()
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	ledgertest.Has(t, func(fn func(hongbao.Grant) error) error { return f.ledger.EachGrant(t.Context(), campaign, fn) },
		want)
}

// books returns the books of the ledger.
func (f *fixture) books() books.Books { return books.Of(f.ledger.tables) }

// open returns the grants in quarantine that wait for a decision.
func (f *fixture) open(t testing.TB) []model.Quarantined {
	t.Helper()
	list, err := f.ledger.Quarantine(t.Context(), 0, 10_000)
	require.NoError(t, err)
	return list
}

func (f *fixture) balance(t testing.TB, account string) hongbao.Amount {
	t.Helper()
	b, _, err := f.ledger.Balance(t.Context(), account)
	require.NoError(t, err)
	return b
}

func (f *fixture) setPlan(t testing.TB, plan ledgertest.Plan) {
	t.Helper()
	config := f.Settler.config
	config.Plan = plan
	var err error
	f.Settler, err = NewSettler(config)
	require.NoError(t, err)
}

// tamper writes to the database without the checks of this package.
func (f *fixture) tamper(t testing.TB, stmts ...db.Stmt) {
	t.Helper()
	ledgertest.Tamper(t, f.ledger.tables, stmts...)
}
