package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Ledger is the database that records which users were paid. All methods are safe for concurrent use by many workers
// and processes.
type Ledger struct {
	config  Config
	store   db.Store
	dialect *db.Dialect
	known   campaignCache
	// refuseNewer, if not empty, is a query that fails if the schema is too new for this build.
	refuseNewer string
	log         atomic.Pointer[zap.Logger] // Config.Log, else the log of the first Settler; may be nil
	newer       alarms
}

// Open connects to an existing ledger, and checks the server's settings and the schema. It creates and changes nothing.
// Its error wraps a *db.SettingError for every setting that could lose money. If the database lacks the tables of this
// build, Open returns an error of ClassBroken. Migrate, which `hongbao init` calls, creates the tables.
func Open(ctx context.Context, config Config) (*Ledger, error) {
	l, err := reach(ctx, config, false)
	if err != nil {
		return nil, err
	}
	version, err := l.checkSchema(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the %s ledger: %w", l.dialect.Name, err), l.store.Close())
	}
	l.refuseNewer = fmt.Sprintf(l.dialect.RefuseNewer, version)
	return l, nil
}

// Migrate creates the tables or brings them up to date, and returns the names of the steps that it ran. Concurrent
// calls are safe: one migrates, the others wait for it. If no step is missing, it needs no right to change the schema.
func Migrate(ctx context.Context, config Config) (steps []string, err error) {
	l, err := reach(ctx, config, true)
	if err != nil {
		return nil, err
	}
	steps, err = l.migrate(ctx)
	if err = errors.Join(err, l.store.Close()); err != nil {
		return nil, fmt.Errorf("migrate the %s ledger: %w", l.dialect.Name, err)
	}
	return steps, nil
}

// migrateTimeout replaces a shorter Config.Timeout in a migration, because creating an index on a large table takes
// long.
const migrateTimeout = time.Hour

// reach connects to the database and checks its settings. create says that the caller migrates, so reach may create the
// file of SQLite.
func reach(ctx context.Context, config Config, create bool) (*Ledger, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	if create {
		config.Timeout = max(config.Timeout, migrateTimeout)
	}
	l := newLedger(config)
	var err error
	l.store, err = config.Database.Open(ctx, config.Limits, create)
	var missing *db.MissingError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w: %w", ErrNotInitialized, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the %s ledger: %w", l.dialect.Name, err)
	}
	return l, nil
}

// newLedger returns a ledger without a store.
func newLedger(config Config) *Ledger {
	l := &Ledger{config: config, dialect: config.Database.Dialect(),
		known: campaignCache{campaigns: make(map[string]knownCampaign)}, newer: alarms{last: make(map[string]time.Time)}}
	l.log.Store(config.Log)
	return l
}

// Close waits for running transactions and closes all connections. Call no other method after it.
func (l *Ledger) Close() error { return l.store.Close() }

// write runs a transaction, and retries it a bounded number of times while it fails with db.ErrAgain. Within Together
// it runs as a part of the outer transaction.
func (l *Ledger) write(ctx context.Context, fn func(context.Context, db.Txn) ([]db.Stmt, error)) error {
	if t := togetherOf(ctx); t != nil {
		return t.write(ctx, fn)
	}
	return l.again(ctx, func() error {
		tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
		return l.store.Write(tctx, l.refusing(tctx, func(t db.Txn) ([]db.Stmt, error) { return fn(tctx, t) }))
	})
}

// readDurably is read for an answer that confirms what it has read. It returns once that is on the servers for which a
// commit waits: on PostgreSQL what it has read may be committed, but not replicated yet.
func (l *Ledger) readDurably(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	return l.write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) { return nil, fn(ctx, t) })
}

// Replicated returns once all that this process has read in the ledger is on the servers for which a commit waits. Call
// it before something that can't be taken back, such as dealing packets, if no method that writes is called before.
func (l *Ledger) Replicated(ctx context.Context) error {
	err := l.readDurably(ctx, func(ctx context.Context, t db.Txn) error { return t.Run(ctx) })
	if err != nil {
		return fmt.Errorf("wait for the ledger's standby: %w", err)
	}
	return nil
}

// refusing makes a transaction fail once a newer build has changed the schema incompatibly. A Ledger that migrates
// checks the schema itself, because it may have no tables yet.
func (l *Ledger) refusing(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) func(db.Txn) ([]db.Stmt, error) {
	if l.refuseNewer == "" {
		return fn
	}
	return func(t db.Txn) ([]db.Stmt, error) {
		if err := t.RefuseNewer(ctx, l.refuseNewer); err != nil {
			return nil, err
		}
		return fn(t)
	}
}

// alarmNewer logs the alarm that the schema is too new for this build, at most once a minute.
func (l *Ledger) alarmNewer(err error) {
	if log := l.log.Load(); log != nil && errors.Is(err, db.ErrNewerSchema) && l.newer.due("") {
		log.Error("ALARM: the ledger's schema is newer than this build can work with, so this process writes nothing to it, "+
			"and grants wait unpaid; run the new build", zap.String("code", "newer_schema"), zap.Error(err))
	}
}

// again runs a transaction, and retries it a bounded number of times while it fails with db.ErrAgain.
func (l *Ledger) again(ctx context.Context, transact func() error) error {
	run := func() (again bool, err error) {
		start := time.Now()
		err = transact()
		l.alarmNewer(err)
		again = errors.Is(err, db.ErrAgain)
		l.observe("write", start, again, err)
		if ctx.Err() != nil && hongbao.IsOutage(err) { // the caller gave up; the database is not down
			err = hongbao.Errorf(hongbao.ClassOf(err), "%w: %w", context.Cause(ctx), err)
		}
		return again, err
	}
	wait := retry.Backoff(2*time.Millisecond, 100*time.Millisecond, l.config.Timeout)
	retries := l.config.Retries + 1 // one more, because the first try only assumes that all rows are new
	return retry.Do(ctx, backoff.WithMaxRetries(wait, uint64(retries)), run)
}

// read runs fn on one snapshot. Within a Together that has written something, it runs fn in that transaction.
func (l *Ledger) read(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	if begun, err := togetherOf(ctx).read(ctx, fn); begun {
		return err
	}
	tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	start := time.Now()
	err := l.store.Read(tctx, func(t db.Txn) error { return fn(tctx, t) })
	l.observe("read", start, false, err)
	return err
}

func (l *Ledger) observe(kind string, start time.Time, again bool, err error) {
	if l.config.Observe != nil {
		l.config.Observe(kind, time.Since(start), again, err)
	}
}

// maxKnownCampaigns bounds the cache of campaigns.
const maxKnownCampaigns = 10_000

// knownCampaign is what every batch needs to know of a campaign. Top-ups may have added packets since; nothing else
// changes.
type knownCampaign struct {
	currency string
	packets  int64
	latest   bool // packets was just read, because the batch has a packet above it
}

// campaignCache caches campaigns of the ledger, which never deletes one.
type campaignCache struct {
	mu        sync.RWMutex
	campaigns map[string]knownCampaign
}

func (c *campaignCache) get(id string) (knownCampaign, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, ok := c.campaigns[id]
	return k, ok
}

func (c *campaignCache) put(id string, k knownCampaign) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.campaigns) >= maxKnownCampaigns {
		clear(c.campaigns)
	}
	c.campaigns[id] = k
}

// forget makes the next lookUp read the ledger.
func (c *campaignCache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.campaigns, id)
}

// lookUp returns what is known of a campaign; false if the ledger does not have it. It reads the ledger if the campaign
// is not cached, or if packet is above the cached number of packets.
func (l *Ledger) lookUp(ctx context.Context, id string, packet int64) (knownCampaign, bool, error) {
	if k, ok := l.known.get(id); ok && packet <= k.packets {
		return k, true, nil
	}
	k, found, err := rowQuery[knownCampaign]{"look up campaign " + id + " in the ledger",
		`SELECT currency, packets FROM campaign WHERE id = $1`, []any{id}, func(s db.Scan) (k knownCampaign, err error) {
			err = s(&k.currency, &k.packets)
			return k, err
		}}.one(ctx, l)
	if found && togetherOf(ctx) == nil { // a campaign that Together has created may be rolled back
		l.known.put(id, k)
	}
	return k, found, err
}
