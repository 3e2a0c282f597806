package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// backend returns the configuration of a new, empty database.
type backend func(t testing.TB) Config

func sqliteConfig(t testing.TB) Config {
	return testConfig(sqlite.Database{Path: filepath.Join(t.TempDir(), "ledger ?#%.db")})
}

func postgresConfig(t testing.TB) Config {
	return testPostgres(testkit.Postgres(t))
}

// testPostgres allows the two unsafe settings with which testkit's servers are faster.
func testPostgres(dsn string) Config {
	return testConfig(postgres.Database{DSN: dsn, UnsafeAllow: []string{"fsync", "full_page_writes"}})
}

func mariadbConfig(t testing.TB) Config {
	return testMariaDB(testkit.MariaDB(t))
}

// testMariaDB allows the unsafe setting with which testkit's servers are faster.
func testMariaDB(dsn string) Config {
	return testConfig(mysql.Database{DSN: dsn, UnsafeAllow: []string{"innodb_doublewrite"}})
}

func testConfig(d db.Database) Config {
	return Config{Database: d, Retries: 10, Limits: db.Limits{Conns: 8, ConnectTimeout: 5 * time.Second,
		LockTimeout: 10 * time.Second, Timeout: 30 * time.Second}}
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

// planFunc is a function that implements PlanSource.
type planFunc func(campaign string, packet int64) (hongbao.Amount, bool, error)

func (f planFunc) Amount(_ context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	return f(campaign, packet)
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

const testCurrency = "CNY"

// planned returns the amount of a packet in every test campaign.
func planned(packet int64) hongbao.Amount { return hongbao.Amount(100 + packet%7) }

func fundedFor(packets int64) hongbao.Amount {
	var sum hongbao.Amount
	for p := int64(1); p <= packets; p++ {
		sum += planned(p)
	}
	return sum
}

func newFixture(t testing.TB, config Config) *fixture {
	t.Helper()
	f := &fixture{config: config, ledger: open(t, config), forged: make(map[packetKey]hongbao.Amount)}
	var err error
	f.Settler, err = NewSettler(SettlerConfig{
		Ledger: f.ledger, Log: zap.NewNop(),
		Plan: planFunc(func(campaign string, packet int64) (hongbao.Amount, bool, error) {
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
	spec := hongbao.Campaign{
		ID: id, Name: "rain", Kind: hongbao.KindRedPacket, Currency: testCurrency, Total: fundedFor(packets),
		Packets: packets,
		Split:   hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 200}, TimeZone: "Asia/Shanghai", Sponsor: "acme",
		From: time.UnixMilli(1_700_000_000_000).UTC(), To: time.UnixMilli(1_700_000_060_000).UTC(),
		Durability: hongbao.DurabilityFast,
		Limits:     []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 3}},
	}
	return canonical(t, spec)
}

func canonical(t testing.TB, spec hongbao.Campaign) Campaign {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	c := Campaign{Spec: spec, Canonical: text, Hash: "sha256-of-" + spec.ID}
	copy(c.Seed[:], "seed of "+spec.ID)
	return c
}

func (f *fixture) create(t testing.TB, id string, packets int64) {
	t.Helper()
	_, err := f.ledger.CreateCampaign(t.Context(), testCampaign(t, id, packets))
	require.NoError(t, err)
}

// grant returns the grant of a packet as Redis would make it. Its seq is the packet, and each user gets several
// packets.
func grant(campaign string, packet int64) hongbao.Grant {
	return hongbao.Grant{
		Shard: 3, Seq: packet, Epoch: 1, EntryID: "1700000000000-0", Campaign: campaign, Packet: packet,
		Amount: planned(packet), User: fmt.Sprintf("u%d", packet*7919%101), RequestID: fmt.Sprintf("r%d", packet),
		Time: time.UnixMilli(1_700_000_000_000 + packet).UTC(),
	}
}

func grantsOf(campaign string, first, last int64) []hongbao.Grant {
	list := make([]hongbao.Grant, 0, last-first+1)
	for p := first; p <= last; p++ {
		list = append(list, grant(campaign, p))
	}
	return list
}

// settles settles the grants of each shard in a batch of its own.
func (f *fixture) settles(t rapid.TB, grants ...hongbao.Grant) {
	t.Helper()
	of := map[int][]hongbao.Grant{}
	for i := range grants {
		of[grants[i].Shard] = append(of[grants[i].Shard], grants[i])
	}
	for _, some := range of {
		require.Nil(t, f.Handle(context.Background(), testkit.Batch(some)))
	}
}

func by(who, why string) stream.Decision { return stream.Decision{By: who, Why: why} }

func (f *fixture) disown(t require.TestingT, campaign string) {
	require.NoError(t, f.ledger.Disown(context.Background(), campaign, by("ann", "it will never exist")))
}

// holds checks that the ledger is consistent and has exactly the given grants of the campaign.
func (f *fixture) holds(t testing.TB, campaign string, want []hongbao.Grant) {
	t.Helper()
	differences, err := f.ledger.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	var got []hongbao.Grant
	require.NoError(t, f.ledger.EachGrant(t.Context(), campaign, func(g hongbao.Grant) error {
		got = append(got, g)
		return nil
	}))
	require.Len(t, got, len(want))
	for i, g := range want {
		g.EntryID, g.Trace = "", ""
		require.Equal(t, g, got[i])
	}
}

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

func (f *fixture) setPlan(t testing.TB, plan planFunc) {
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
	require.NoError(t, f.ledger.tables.Store.Write(t.Context(), func(db.Txn) ([]db.Stmt, error) { return stmts, nil }))
}
