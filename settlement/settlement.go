// Package settlement makes an SQL ledger agree with the grants: it pays each grant once, even if a grant comes twice,
// late or altered.
//
// Migrate makes the tables once. Open connects to them: PostgreSQL 13, MySQL 8.0.16 or MariaDB 10.6 or newer, or a
// file of SQLite. CreateCampaign funds a campaign before its first grab. New makes the Handler that a consumer calls.
//
// The package promises:
//
//   - The ledger pays a packet of a campaign at most once, permanently: (campaign, packet) is the primary key of
//     grants.
//   - A batch is one transaction. A batch that comes again changes nothing.
//   - The ledger never pays more than a campaign's funding: CHECK constraints in the database ensure it.
//   - A grant that contradicts the ledger, the plan or the funding goes to quarantine with both versions of the
//     facts, and counts as handled: a person decides with `hongbao quarantine`.
//
// Errors carry a class. Transient: nothing was committed. Unknown: COMMIT was sent and no answer came; the same batch
// again gives the right result. An outage (hongbao.IsOutage) concerns the database, not the grants.
//
// Migrate and Open refuse a database that could lose money: a standby, or a server or a file that may forget a commit.
// docs/ledger.md describes the tables.
package settlement

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// Config configures the connection to the ledger. Only Driver and DSN have no default.
type Config struct {
	// Driver is "postgres", "mysql" (also for MariaDB) or "sqlite".
	Driver string
	// DSN is a connection string of libpq (URL or key=value) for PostgreSQL, user@tcp(host:port)/database?tls=... for
	// MySQL, the path of a file for SQLite. It may contain a password and is never logged.
	DSN string
	// Conns bounds the connections, 1 to 1000. 0 means 10.
	Conns int
	// ConnectTimeout bounds one attempt to connect. 0 means 5s.
	ConnectTimeout time.Duration
	// LockTimeout bounds the wait for a lock of another transaction. 0 means 3s.
	LockTimeout time.Duration
	// Timeout bounds one transaction with all its waits. It must be above LockTimeout. 0 means 10s.
	Timeout time.Duration
	// Retries is how often a transaction that lost a lock runs again inside one call, 1 to 100. 0 means 5.
	Retries int
	// UnsafeAllow names settings of the server that Open would refuse and shall accept nevertheless, such as "fsync".
	// The ledger may then forget money that it has confirmed: for tests.
	UnsafeAllow []string
}

func (c *Config) internal() ledger.Config {
	d := ledger.DefaultConfig()
	return ledger.Config{
		Driver: ledger.Driver(c.Driver), DSN: c.DSN, UnsafeAllow: c.UnsafeAllow, Conns: cmp.Or(c.Conns, d.Conns),
		ConnectTimeout: cmp.Or(c.ConnectTimeout, d.ConnectTimeout), LockTimeout: cmp.Or(c.LockTimeout, d.LockTimeout),
		Timeout: cmp.Or(c.Timeout, d.Timeout), Retries: cmp.Or(c.Retries, d.Retries),
	}
}

// Migrate makes the tables or brings them up to date, and returns the names of the steps that were missing. Several
// programs may call it at the same time.
func Migrate(ctx context.Context, config Config) (steps []string, err error) {
	return ledger.Migrate(ctx, config.internal())
}

// Ledger is the database of all payments. It is safe for concurrent use, by many workers and processes.
type Ledger struct{ tables *ledger.Ledger }

// Open connects to a ledger that Migrate has made, and changes nothing. It refuses a database without the tables of
// this version as Broken.
func Open(ctx context.Context, config Config) (*Ledger, error) {
	tables, err := ledger.Open(ctx, config.internal())
	if err != nil {
		return nil, err
	}
	return &Ledger{tables: tables}, nil
}

// Close waits for the running transactions and closes all connections. No other method may be called after it.
func (l *Ledger) Close() error { return l.tables.Close() }

// Campaign is what the ledger must know before the first grab. Its String leaves out the seed.
type Campaign struct {
	Spec hongbao.Campaign
	// Canonical is campaign.Canonical of the specification: the JSON that the commitment covers, byte by byte.
	Canonical []byte
	// Seed determines every packet's amount: keep it secret until the campaign is over.
	Seed [32]byte `json:"-"`
	// Hash is campaign.Commit of the specification and the seed, which is published before the start.
	Hash string
}

// String leaves out the seed.
func (c Campaign) String() string { return ledger.Campaign(c).String() }

// GoString leaves out the seed.
func (c Campaign) GoString() string { return c.String() }

// CreateCampaign stores a campaign and funds its pool from its sponsor's account, in one transaction. A repeat moves
// nothing. Another specification, hash or seed under the same id is an error of class Conflict.
func (l *Ledger) CreateCampaign(ctx context.Context, c Campaign) error {
	_, err := l.tables.CreateCampaign(ctx, ledger.Campaign(c))
	return err
}

// Campaign returns a campaign, and false if the ledger does not have it. campaign.PlansConfig.Source can read from it.
func (l *Ledger) Campaign(ctx context.Context, id string) (Campaign, bool, error) {
	c, found, err := l.tables.Campaign(ctx, id)
	return Campaign(c.Campaign), found, err
}

// Balance returns the amount that a user was paid in a currency, in minor units.
func (l *Ledger) Balance(ctx context.Context, user, currency string) (hongbao.Amount, error) {
	balance, _, err := l.tables.Balance(ctx, ledger.UserAccount(user, currency))
	return balance, err
}

// PlanSource provides the planned amounts: campaign.Plans is one. Amount returns the amount of a packet, and false if
// the plan has no such packet. It must be safe for concurrent use.
type PlanSource interface {
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
}

// Quarantined is a grant that the ledger did not pay.
type Quarantined struct {
	// ID is the row's number in table quarantine; 0 if the same grant was there before.
	ID int64
	// Reason is what was wrong; docs/ledger.md lists the reasons.
	Reason string
	Grant  hongbao.Grant
	// Has is the ledger's own version of the packet; nil if it has none.
	Has *hongbao.Grant
}

// HandlerConfig configures New. Ledger, Plan and Log are required.
type HandlerConfig struct {
	Ledger *Ledger
	Plan   PlanSource
	Log    *zap.Logger
	// OnQuarantine, if not nil, is called after a grant was put into quarantine, and again whenever the same grant
	// comes again. Its error is an outage: the grant comes again. It must be safe for concurrent use.
	OnQuarantine func(Quarantined) error
}

// New makes the Handler that pays grants in one transaction. The Handler returns nil if all grants are durable: paid,
// or in quarantine. Otherwise it returns one error for each grant, nil for the durable ones. A grant whose campaign
// the ledger does not have waits (hongbao.IsHeld).
func New(config HandlerConfig) (hongbao.Handler, error) {
	c := ledger.SettlerConfig{Plan: config.Plan, Log: config.Log}
	if config.Ledger != nil {
		c.Ledger = config.Ledger.tables
	}
	if config.OnQuarantine != nil {
		c.OnQuarantine = func(q ledger.Quarantined) error {
			return config.OnQuarantine(Quarantined{ID: q.ID, Reason: string(q.Reason), Grant: q.Grant, Has: q.Has})
		}
	}
	settler, err := ledger.NewSettler(c)
	if err != nil {
		return nil, err // a nil *Settler would be a Handler
	}
	return settler, nil
}
