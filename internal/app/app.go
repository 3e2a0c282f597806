package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// App is one process's view of a deployment: its configuration, Redis and the ledger. App opens both at their first
// use. Its methods are safe for concurrent use.
type App struct {
	Config *configs.Config
	log    *zap.Logger
	worker string // the unique name of this process

	hooks    Hooks
	outcomes Outcomes // of the grabs that this process answers

	redis     redis.UniversalClient
	store     *store.Store // of redis
	redisOpen atomic.Bool  // openRedis has accepted it
	ledger    *ledger.Ledger
	founded   founding
	mu        sync.Mutex // guards authority and closes

	scans     *semaphore.Weighted // bounds trails that search all receipts, for the process
	authority *access.Authority   // by Authority
	denials   access.Denials
	tended    bool // TendJournal runs
	closes    []func() error
}

// Hooks let a process watch its App. Each may be nil.
type Hooks struct {
	// Ledger is called after each transaction, Kafka after each request.
	Ledger func(kind string, took time.Duration, again bool, err error)
	Kafka  func(request string, took time.Duration, err error)
	// Sink wraps the handler to which a requeue or a replay delivers.
	Sink func(sink string, h hongbao.Handler) hongbao.Handler
}

// New returns an App. It contacts no server.
func New(cfg *configs.Config, log *zap.Logger, hooks Hooks) (*App, error) {
	redis.SetLogger(redisLog{log.Sugar()}) // otherwise the library writes to standard error
	a := &App{Config: cfg, log: log, worker: workerName(), scans: semaphore.NewWeighted(maxScans), hooks: hooks}
	a.redis = cfg.RedisClient()
	a.atEnd(a.redis.Close)
	var err error
	if a.store, err = store.Of(a.redis, cfg.Space()); err == nil {
		a.atEnd(func() error { a.store.Forget(); return nil })
	}
	a.ledger = a.newLedger()
	a.atEnd(a.ledger.Close)
	return a, err
}

// Store returns the deployment's Redis. Redis need not be open.
func (a *App) Store() *store.Store { return a.store }

// Ledger returns the deployment's ledger. The ledger need not be open.
func (a *App) Ledger() *ledger.Ledger { return a.ledger }

// Worker returns the unique name of this process.
func (a *App) Worker() string { return a.worker }

// Outcomes returns the counts of this process's answers to grabs.
func (a *App) Outcomes() *Outcomes { return &a.outcomes }

// Log returns the logger of the process.
func (a *App) Log() *zap.Logger { return a.log }

// redisLog takes the messages of go-redis about connections. Important ones also come back as errors.
type redisLog struct{ *zap.SugaredLogger }

// Printf implements the library's logger.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.Debugf("redis client: "+format, v...)
}

// workerName returns the host's name with a unique random part.
func workerName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// atEnd adds a step for Shut.
func (a *App) atEnd(f func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closes = append(a.closes, f)
}

// Shut closes everything in reverse order and adds the errors to err.
func (a *App) Shut(err *error) {
	for i := len(a.closes) - 1; i >= 0; i-- {
		*err = errors.Join(*err, a.closes[i]())
	}
	_ = a.log.Sync() // a terminal can't be synced
}

// has reports whether the deployment has the sink.
func (a *App) has(sink string) bool { return slices.Contains(a.Config.Deployment.Sinks, sink) }

// CheckSinks refuses sinks that the deployment does not have. flag names the flag that selected the sinks.
func (a *App) CheckSinks(flag string, sinks ...string) error {
	for _, s := range sinks {
		if !a.has(s) {
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

// loader returns the loader that brings campaigns and their top-ups from the ledger into Redis.
func (a *App) loader() (*load.Loader, error) {
	cfg := a.Config.Loader
	if a.Config.Ledger.DSN != "" {
		cfg.Codes, cfg.Pause = a.ledger.Codes, a.ledger.CampaignPause
	}
	return load.New(a.store, cfg)
}

// Locks returns the deployment's locks.
func (a *App) Locks() (*store.Locks, error) { return a.store.Locks(a.Config.LockConfig()) }

// progressEvery is how often a long call logs its progress.
const progressEvery = 5 * time.Second

// progress returns a function that receives the progress of a long call, and logs it every progressEvery.
func (a *App) progress(what string, total int64) func(done int64) {
	next := time.Now().Add(progressEvery)
	return func(done int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			a.log.Info(what, zap.Int64("done", done), zap.Int64("of", total))
		}
	}
}
