package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// App is one process's access to a deployment: its configuration, Redis and the ledger. App connects to each server at
// the first use. Its methods are safe for concurrent use.
type App struct {
	Config *configs.Config
	log    *zap.Logger
	worker string

	hooks Hooks

	redis     redis.UniversalClient
	store     *store.Store // of redis
	redisOpen atomic.Bool  // OpenRedis has accepted Redis
	ledger    *ledger.Ledger
	founded   founding
	mu        sync.Mutex // guards authority and closes

	scans     *semaphore.Weighted // bounds how many trails of this process search all receipts at once
	authority *access.Authority   // set by the first call of Authority
	denials   access.Denials
	reads     access.Reads
	late      unrefunded
	tended    atomic.Bool // TendJournal is running
	closes    []func() error
}

// Hooks let a process observe its App. Each hook may be nil.
type Hooks struct {
	// Ledger is called after each transaction, Kafka after each request.
	Ledger func(kind string, took time.Duration, again bool, err error)
	Kafka  func(request string, took time.Duration, err error)
	// Sink wraps the handler to which a requeue or a replay delivers.
	Sink func(sink string, h hongbao.Handler) hongbao.Handler
	// Progress gets the progress of long calls several times a second, and the zero value at the end of a call. If it is
	// nil, the log has a line every few seconds.
	Progress func(Progress)
}

// New returns an App. It contacts no server.
func New(cfg *configs.Config, log *zap.Logger, hooks Hooks) (*App, error) {
	redis.SetLogger(redisLog{log.Sugar()}) // by default the library writes to standard error
	a := &App{Config: cfg, log: log, worker: store.WorkerName(cfg.Seams.Process),
		scans: semaphore.NewWeighted(MaxScans), hooks: hooks}
	a.redis = cfg.RedisClient()
	a.atEnd(a.redis.Close)
	reads := cfg.ReadsClient()
	a.atEnd(reads.Close)
	var err error
	a.store, err = store.New(store.Config{Redis: a.redis, Reads: reads, Space: cfg.Space(), Deployment: cfg.Deployment.ID})
	a.ledger = a.newLedger()
	a.atEnd(a.ledger.Close)
	return a, err
}

// Store returns the deployment's Redis, which may not be connected yet.
func (a *App) Store() *store.Store { return a.store }

// Deployment returns the deployment for a producer or a consumer.
func (a *App) Deployment() *deployment.Deployment { return deployment.Of(a.store, a.log) }

// Ledger returns the deployment's ledger, which may not be connected yet.
func (a *App) Ledger() *ledger.Ledger { return a.ledger }

// Books returns the books of the ledger.
func (a *App) Books() books.Books { return books.Of(a.ledger.Tables()) }

// Worker returns the unique name of this process.
func (a *App) Worker() string { return a.worker }

// Log returns the logger of the process.
func (a *App) Log() *zap.Logger { return a.log }

// redisLog writes go-redis' messages about connections at level debug. Calls return the important ones as errors.
type redisLog struct{ *zap.SugaredLogger }

// Printf implements the library's logger.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.Debugf("redis client: "+format, v...)
}

// atEnd adds a function that Shut calls.
func (a *App) atEnd(f func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closes = append(a.closes, f)
}

// Shut calls the functions of atEnd in reverse order, and joins their errors to err.
func (a *App) Shut(err *error) {
	for i := len(a.closes) - 1; i >= 0; i-- {
		*err = errors.Join(*err, a.closes[i]())
	}
	_ = a.log.Sync() // fails for a terminal
}

// Has reports whether the deployment has a sink.
func (a *App) Has(sink string) bool { return slices.Contains(a.Config.Deployment.Sinks, sink) }

// CheckSinks returns an error if the deployment lacks one of the sinks. The error names the flag that selected them.
func (a *App) CheckSinks(flag string, sinks ...string) error {
	for _, s := range sinks {
		if !a.Has(s) {
			return Usage("%s %.40q is not among deployment.sinks (%s)", flag, s,
				strings.Join(a.Config.Deployment.Sinks, ", "))
		}
	}
	return nil
}

// Allows reports whether unsafe.allow names a check.
func (a *App) Allows(name string) bool {
	return slices.Contains(a.Config.Unsafe.Allow, name)
}

// Loader returns the loader that brings campaigns and their top-ups from the ledger into Redis.
func (a *App) Loader() (*load.Loader, error) {
	cfg := a.Config.Loader
	if a.Config.Ledger.DSN != "" {
		cfg.Codes, cfg.Pause = a.ledger.Codes, a.ledger.CampaignPause
	}
	return load.New(a.store, cfg)
}

// MaxScans bounds how many trails of this process may search all receipts or dead letters at the same time. Such a
// search may read millions of them from Redis, and may find nothing.
const MaxScans = 2

// Scans bounds how many trails of this process search all receipts or dead letters at the same time.
func (a *App) Scans() *semaphore.Weighted { return a.scans }

// Locks returns the deployment's locks.
func (a *App) Locks() (*store.Locks, error) { return a.store.Locks(a.Config.LockConfig()) }
