package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Ledger is the database that records which users were paid. All methods are safe for concurrent use by many workers
// and processes.
type Ledger struct {
	config Config
	tables *tables.DB
	known  campaignCache
	log    atomic.Pointer[zap.Logger] // Config.Log, else the log of the first Settler; may be nil
	newer  alarms
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
		return nil, errors.Join(fmt.Errorf("open the %s ledger: %w", l.tables.Dialect.Name, err), l.tables.Store.Close())
	}
	l.tables.RefuseNewer = fmt.Sprintf(l.tables.Dialect.RefuseNewer, version)
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
	if err = errors.Join(err, l.tables.Store.Close()); err != nil {
		return nil, fmt.Errorf("migrate the %s ledger: %w", l.tables.Dialect.Name, err)
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
	l.tables.Store, err = config.Database.Open(ctx, config.Limits, create)
	var missing *db.MissingError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w: %w", ErrNotInitialized, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the %s ledger: %w", l.tables.Dialect.Name, err)
	}
	return l, nil
}

// newLedger returns a ledger without a store.
func newLedger(config Config) *Ledger {
	l := &Ledger{config: config, known: campaignCache{campaigns: make(map[string]knownCampaign)},
		newer: alarms{last: make(map[string]time.Time)}}
	l.tables = &tables.DB{Dialect: config.Database.Dialect(), Timeout: config.Timeout, Retries: config.Retries,
		Observe: config.Observe, Wrote: l.alarmNewer}
	l.log.Store(config.Log)
	return l
}

// Close waits for running transactions and closes all connections. Call no other method after it.
func (l *Ledger) Close() error { return l.tables.Store.Close() }

// Tables returns the ledger's database, for the packages beside this one.
func (l *Ledger) Tables() *tables.DB { return l.tables }

// Replicated returns once all that this process has read in the ledger is on the servers for which a commit waits. Call
// it before something that can't be taken back, such as dealing packets, if no method that writes is called before.
func (l *Ledger) Replicated(ctx context.Context) error {
	err := l.tables.ReadDurably(ctx, func(ctx context.Context, t db.Txn) error { return t.Run(ctx) })
	if err != nil {
		return fmt.Errorf("wait for the ledger's standby: %w", err)
	}
	return nil
}

// alarmNewer logs the alarm that the schema is too new for this build, at most once a minute.
func (l *Ledger) alarmNewer(err error) {
	if log := l.log.Load(); log != nil && errors.Is(err, db.ErrNewerSchema) && l.newer.due("") {
		log.Error("ALARM: the ledger's schema is newer than this build can work with, so this process writes nothing to it, "+
			"and grants wait unpaid; run the new build", zap.String("code", "newer_schema"), zap.Error(err))
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
	k, found, err := tables.Ask("look up campaign "+id+" in the ledger",
		`SELECT currency, packets FROM campaign WHERE id = $1`, []any{id}, func(s db.Scan) (k knownCampaign, err error) {
			err = s(&k.currency, &k.packets)
			return k, err
		}).One(ctx, l.tables)
	if found && !tables.InTogether(ctx) { // a campaign that Together has created may be rolled back
		l.known.put(id, k)
	}
	return k, found, err
}
