// Package settlement pays grants in an SQL ledger. It pays each grant once, even if a grant is delivered twice, late
// or altered.
//
// A ledger is in a database of PostgreSQL, MySQL or MariaDB, or in a file of SQLite: settlement/postgres,
// settlement/mysql or settlement/sqlite returns the Database. A program links only the client of the one that it
// imports.
//
// Migrate creates the tables. Open connects to the database. CreateCampaign funds a campaign before its first grab. New
// returns the Handler that a consumer calls.
//
// The package promises:
//
//   - The ledger pays a packet of a campaign at most once, permanently: (campaign, packet) is the primary key of
//     grants.
//   - A batch is one transaction. A batch that is delivered again changes nothing.
//   - The ledger never pays more than a campaign's funding: CHECK constraints in the database ensure it.
//   - A grant that contradicts the ledger, the plan or the funding goes to quarantine with both versions of the
//     facts, and counts as handled. An operator decides about it with `hongbao quarantine`.
//
// Errors have a class. Transient means that nothing was committed. Unknown means that COMMIT was sent and the answer
// is missing; it is safe to retry the same batch. An outage (hongbao.IsOutage) concerns the database, not the grants.
//
// Migrate and Open refuse a database that could lose money, i.e. a standby, or a server or file that may lose a
// committed transaction. docs/ledger.md describes the tables.
package settlement

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Database says where a ledger is. A program gets one from settlement/postgres, settlement/mysql or settlement/sqlite,
// and passes it on in a Config; the methods are for this module.
type Database interface{ db.Database }

// Config configures the connection to the ledger. Only Database has no default.
type Config struct {
	Database Database
	// Conns is the maximum number of connections, 1 to 1000. 0 means 10.
	Conns int
	// ConnectTimeout is the timeout of one attempt to connect. 0 means 5s.
	ConnectTimeout time.Duration
	// LockTimeout limits the wait for a lock of another transaction. 0 means 3s. MySQL rounds it up to whole seconds.
	LockTimeout time.Duration
	// Timeout limits one transaction, including its waits. It must be longer than LockTimeout. 0 means 10s.
	Timeout time.Duration
	// Retries is how often one call retries a transaction that failed because of a lock, 1 to 100. 0 means 5.
	Retries int
}

func (c *Config) internal() ledger.Config {
	d := ledger.DefaultConfig()
	return ledger.Config{Database: c.Database, Retries: cmp.Or(c.Retries, d.Retries), Limits: db.Limits{
		Conns: cmp.Or(c.Conns, d.Conns), ConnectTimeout: cmp.Or(c.ConnectTimeout, d.ConnectTimeout),
		LockTimeout: cmp.Or(c.LockTimeout, d.LockTimeout), Timeout: cmp.Or(c.Timeout, d.Timeout)}}
}

// Migrate creates the tables or updates them to this version. It returns the names of the migration steps that it
// ran. Several programs may call it at the same time.
func Migrate(ctx context.Context, config Config) (steps []string, err error) {
	return ledger.Migrate(ctx, config.internal())
}

// Ledger is the database of all payments. It is safe for concurrent use, by many workers and processes.
type Ledger struct{ tables *ledger.Ledger }

// Open connects to a ledger that Migrate has created. It changes nothing. If the database does not have the tables of
// this version, the error is Broken.
func Open(ctx context.Context, config Config) (*Ledger, error) {
	tables, err := ledger.Open(ctx, config.internal())
	if err != nil {
		return nil, err
	}
	return &Ledger{tables: tables}, nil
}

// Close waits for the running transactions and closes all connections. No other method may be called after it.
func (l *Ledger) Close() error { return l.tables.Close() }

// Campaign is a campaign to store in the ledger before its first grab. String omits the seed.
type Campaign struct {
	Spec hongbao.Campaign
	// Canonical is campaign.Canonical of the specification: the exact JSON bytes that the commitment covers.
	Canonical []byte
	// Seed determines the amount of every packet. Keep it secret until the campaign is over.
	Seed [32]byte `json:"-"`
	// Hash is campaign.Commit of the specification and the seed. It is published before the start.
	Hash string
}

// String formats the campaign without the seed.
func (c Campaign) String() string { return ledger.Campaign(c).String() }

// GoString formats the campaign without the seed.
func (c Campaign) GoString() string { return c.String() }

// CreateCampaign stores a campaign and funds its pool from its sponsor's account, in one transaction. A repeated call
// changes nothing. If the id already has a different specification, hash or seed, the error is a Conflict.
func (l *Ledger) CreateCampaign(ctx context.Context, c Campaign) error {
	_, err := l.tables.CreateCampaign(ctx, ledger.Campaign(c))
	return err
}

// Plan returns a campaign's specification and seed, and the draws of its top-ups: all that its packets are drawn from.
// Give it to campaign.PlansConfig.Source. If the ledger does not have the campaign, its grants wait.
func (l *Ledger) Plan(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, []campaign.TopUp, error) {
	return l.tables.Plan(ctx, id)
}

// Campaign returns a campaign, and false if the ledger does not have it.
func (l *Ledger) Campaign(ctx context.Context, id string) (Campaign, bool, error) {
	c, found, err := l.tables.Campaign(ctx, id)
	return Campaign(c.Campaign), found, err
}

// Balance returns the amount that a user was paid in a currency, in minor units.
func (l *Ledger) Balance(ctx context.Context, user, currency string) (hongbao.Amount, error) {
	balance, _, err := l.tables.Balance(ctx, tables.UserAccount(user, currency))
	return balance, err
}

// PlanSource provides the planned amounts: campaign.Plans is one. Amount returns the amount of a packet, and false if
// the plan has no such packet. If the ledger counts that packet, its grant then waits (hongbao.IsWaiting), and an alarm
// is logged: the plan lacks a top-up. It must be safe for concurrent use.
type PlanSource interface {
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
}

// Quarantined is a grant that the ledger did not pay.
type Quarantined struct {
	// ID is the id of the row in table quarantine. It is 0 if the same grant was already in quarantine.
	ID int64
	// Reason is why the grant was not paid; docs/ledger.md lists the reasons.
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
	// OnQuarantine, if not nil, is called after a grant was put into quarantine, and each time the same grant is
	// delivered again. Its error is treated as an outage, so the grant is delivered again. It must be safe for
	// concurrent use.
	OnQuarantine func(Quarantined) error
}

// New returns a Handler that pays a batch of grants in one transaction. The Handler returns nil if all grants are
// paid or in quarantine. Otherwise it returns a list with one error for each grant, which is nil for grants that are
// paid or in quarantine. If a grant's campaign is not in the ledger, the grant waits: hongbao.IsWaiting is true for its
// error.
func New(config HandlerConfig) (hongbao.Handler, error) {
	c := ledger.SettlerConfig{Plan: config.Plan, Log: config.Log}
	if config.Ledger != nil {
		c.Ledger = config.Ledger.tables
	}
	if config.OnQuarantine != nil {
		c.OnQuarantine = func(q model.Quarantined) error {
			return config.OnQuarantine(Quarantined{ID: q.ID, Reason: string(q.Reason), Grant: q.Grant, Has: q.Has})
		}
	}
	settler, err := ledger.NewSettler(c)
	if err != nil {
		return nil, err // not settler, which would be a non-nil Handler
	}
	return settler, nil
}
