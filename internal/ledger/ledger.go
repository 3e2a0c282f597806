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
)

// Ledger is the database that records which users were paid. All methods are safe for concurrent use by many workers
// and processes.
type Ledger struct {
	config  Config
	store   store
	dialect *dialect
	known   campaignCache
	// refuseNewer, if not empty, is the dialect's query for this build.
	refuseNewer string
	log         atomic.Pointer[zap.Logger] // Config.Log, otherwise that of the first Settler, or nil
	newer       alarms
}

// Open connects to an existing ledger, and checks the server's settings and the schema. It creates and changes nothing.
// For every setting that could lose money its error has a *SettingError in the chain. It refuses (Broken) a database
// without the tables of this build. Migrate creates them; `hongbao init` calls it.
func Open(ctx context.Context, config Config) (*Ledger, error) {
	l, err := reach(ctx, config, false)
	if err != nil {
		return nil, err
	}
	version, err := l.checkSchema(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the %s ledger: %w", config.Driver, err), l.store.close())
	}
	l.refuseNewer = fmt.Sprintf(l.dialect.refuseNewer, version)
	return l, nil
}

// Migrate creates the tables or brings them up to date, and names the steps that were missing. Concurrent calls are
// safe: one migrates, the others wait for it. If nothing is missing it needs no right to change the schema.
func Migrate(ctx context.Context, config Config) (steps []string, err error) {
	l, err := reach(ctx, config, true)
	if err != nil {
		return nil, err
	}
	steps, err = l.migrate(ctx)
	if err = errors.Join(err, l.store.close()); err != nil {
		return nil, fmt.Errorf("migrate the %s ledger: %w", config.Driver, err)
	}
	return steps, nil
}

// migrateTimeout bounds a migration, whatever Config.Timeout is: an index on a large table takes its time.
const migrateTimeout = time.Hour

// migrating returns the configuration for a migration. It waits as usual for the locks of others, but without a limit
// for those of other migrations.
func migrating(config Config) Config {
	config.Timeout = max(config.Timeout, migrateTimeout)
	if config.Driver == SQLite { // the file's only lock
		config.LockTimeout = max(config.LockTimeout, migrateTimeout/2)
	}
	return config
}

// reach connects to the database and checks its settings. create says that the caller migrates, and may create a file
// of SQLite.
func reach(ctx context.Context, config Config, create bool) (*Ledger, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	if create {
		config = migrating(config)
	}
	l := newLedger(config)
	var err error
	switch config.Driver {
	case PostgreSQL:
		l.store, err = openPostgres(ctx, &config)
	case MySQL:
		l.store, err = openMySQL(ctx, &l.config)
	case SQLite:
		l.store, err = openSQLite(ctx, &config, create)
	}
	if err != nil {
		return nil, fmt.Errorf("open the %s ledger: %w", config.Driver, err)
	}
	return l, nil
}

// newLedger returns a ledger without its store. Config.Check refuses any other driver.
func newLedger(config Config) *Ledger {
	l := &Ledger{config: config, known: campaignCache{campaigns: make(map[string]knownCampaign)},
		newer: alarms{last: make(map[string]time.Time)}}
	l.log.Store(config.Log)
	switch config.Driver {
	case PostgreSQL:
		l.dialect = &postgresDialect
	case MySQL:
		l.dialect = &mysqlDialect
	case SQLite:
		l.dialect = &sqliteDialect
	}
	return l
}

// Close waits for running transactions and closes all connections. Call no other method after it.
func (l *Ledger) Close() error { return l.store.close() }

// errAgain marks a transaction that the database rolled back in favour of another one. The caller runs it again.
var errAgain = errors.New("the transaction lost against another one")

// errOverdraw marks a transaction that a CHECK on money refused.
var errOverdraw = errors.New("it would pay more than was funded")

// write runs a transaction, and repeats it a bounded number of times while it loses against others. Within Together it
// runs a part of one.
func (l *Ledger) write(ctx context.Context, fn func(context.Context, txn) ([]stmt, error)) error {
	if t := togetherOf(ctx); t != nil {
		return t.write(ctx, fn)
	}
	return l.again(ctx, func() error {
		tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
		return l.store.write(tctx, l.refusing(tctx, func(t txn) ([]stmt, error) { return fn(tctx, t) }))
	})
}

// refusing makes a transaction fail after a newer build has changed the schema incompatibly. A Ledger that migrates has
// no tables yet, and checks by itself.
func (l *Ledger) refusing(ctx context.Context, fn func(txn) ([]stmt, error)) func(txn) ([]stmt, error) {
	if l.refuseNewer == "" {
		return fn
	}
	return func(t txn) ([]stmt, error) {
		if err := t.refuseNewer(ctx, l.refuseNewer); err != nil {
			return nil, err
		}
		return fn(t)
	}
}

// alarmNewer raises the alarm about a schema that refuses this build, once a minute.
func (l *Ledger) alarmNewer(err error) {
	if log := l.log.Load(); log != nil && errors.Is(err, ErrNewerSchema) && l.newer.due("") {
		log.Error("ALARM: the ledger's schema is newer than this build can work with, so this process writes nothing to it, "+
			"and grants wait unpaid; run the new build", zap.String("code", "newer_schema"), zap.Error(err))
	}
}

// again repeats a transaction that lost against another one, a bounded number of times.
func (l *Ledger) again(ctx context.Context, transact func() error) error {
	run := func() (again bool, err error) {
		start := time.Now()
		err = transact()
		l.alarmNewer(err)
		again = errors.Is(err, errAgain)
		l.observe("write", start, again, err)
		if ctx.Err() != nil && hongbao.IsOutage(err) { // the caller's end is no failure of the database
			err = hongbao.Errorf(hongbao.ClassOf(err), "%w: %w", context.Cause(ctx), err)
		}
		return again, err
	}
	wait := retry.Backoff(2*time.Millisecond, 100*time.Millisecond, l.config.Timeout)
	retries := l.config.Retries + 1 // a first try that assumed all rows to be new changes nothing
	return retry.Do(ctx, backoff.WithMaxRetries(wait, uint64(retries)), run)
}

// read runs fn on one snapshot. Within a Together that has written something, it runs fn in that transaction.
func (l *Ledger) read(ctx context.Context, fn func(context.Context, txn) error) error {
	if begun, err := togetherOf(ctx).read(ctx, fn); begun {
		return err
	}
	tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	start := time.Now()
	err := l.store.read(tctx, func(t txn) error { return fn(tctx, t) })
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

// knownCampaign is what every batch needs of a campaign. Packets may have been added to it since; nothing else changes.
type knownCampaign struct {
	currency string
	packets  int64
	latest   bool // in a batch: the ledger was read for it, since a packet was above what was known
}

// campaignCache remembers campaigns that the ledger has; they are never removed from it.
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

// lookUp returns what every batch needs of a campaign that has a packet; false if the ledger does not have it. It reads
// the ledger again if the packet is above those that were known.
func (l *Ledger) lookUp(ctx context.Context, id string, packet int64) (knownCampaign, bool, error) {
	if k, ok := l.known.get(id); ok && packet <= k.packets {
		return k, true, nil
	}
	k, found, err := question[knownCampaign]{"look up campaign " + id + " in the ledger",
		`SELECT currency, packets FROM campaign WHERE id = $1`, []any{id}, func(s scan) (k knownCampaign, err error) {
			err = s(&k.currency, &k.packets)
			return k, err
		}}.one(ctx, l)
	if found && togetherOf(ctx) == nil { // otherwise it may be rolled back
		l.known.put(id, k)
	}
	return k, found, err
}
