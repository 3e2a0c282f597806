package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Config of a Producer. Take DefaultConfig and fill in Redis, Space and Deployment; a zero elsewhere is refused.
type Config struct {
	// Redis is a *redis.Client or *redis.ClusterClient with ContextTimeoutEnabled, and without ReadOnly, RouteByLatency
	// and RouteRandomly. New refuses others.
	Redis redis.UniversalClient
	Space hongbao.Space
	// Deployment is the deployment's id. A Redis of another one, or with another number of shards, is refused.
	Deployment string
	// Log gets the alarms: a Redis that lost data, its append-only file or noeviction. Each server is checked once a
	// second. nil: no one is alarmed; the producer still reports to Redis which events it has seen.
	Log *zap.Logger
	// Called, if not nil, is called with each call to Redis that has ended, before its grabs are answered. It is for
	// metrics: it must be quick, and several goroutines call it concurrently.
	Called func(Call) `json:"-"`
	// Events of a shard that its slowest sink may not have finished, before grabs are answered busy.
	MaxBacklog int64 `knob:"producer.max_backlog" default:"5000000" want:"1 to 1_000_000_000 events"`
	// Calls of one campaign to one shard in flight at once, at most; a second one starts when many grabs wait.
	InFlight int `knob:"producer.in_flight" default:"2" want:"1 to 16 calls"`
	// Grabs of one campaign that may wait for a call to one shard.
	MaxWaiting int `knob:"producer.max_waiting" default:"100000" want:"1 to 1_000_000 grabs"`
	// One call with all its repeats.
	CallTimeout time.Duration `knob:"producer.call_timeout" default:"5s" want:"1ms to 1m"`
	// How long one grab waits while its outcome is undecided: busy, frozen or refilling; 0s for not at all. With 15s most
	// grabs wait out a failover and are decided, instead of being answered frozen.
	UndecidedTimeout time.Duration `knob:"producer.undecided_timeout" default:"1s" want:"0s to 1m"`
	// How many replicas must have a grant of durability class replica before it is answered. 0: the most that its primary
	// has had since its shard was opened, at least 1.
	Replicas int `knob:"producer.replicas" default:"0" want:"0 to 16 replicas"`
	// Wait for a replica, or for the disk, in campaigns that ask for it.
	DurabilityTimeout time.Duration `knob:"producer.durability_timeout" default:"1s" want:"1ms to 1m"`
}

// Call is a call to Redis that has ended: it decided the grabs of many callers at once.
type Call struct {
	Campaign string
	Grabs    int
	// Traces are the traceparents of the grabs that have one. Called must not keep the slice.
	Traces []string
	// Took is its time with its repeats, and with the wait for a replica or the disk.
	Took time.Duration
	// Err is the error of all its grabs; nil if they were answered.
	Err error
}

// DefaultConfig has every default but Redis, Space, Deployment, Log and Called.
func DefaultConfig() Config { return knob.Defaults[Config]() }

func (c *Config) check() error {
	errs := knob.Check(c)
	if err := store.CheckSpace(c.Space); err != nil {
		errs = append(errs, err)
	}
	if c.Redis == nil || c.Deployment == "" {
		errs = append(errs, errors.New("Redis and Deployment are required"))
	} else {
		errs = append(errs, checkClient(c.Redis)...)
	}
	if len(errs) > 0 {
		return fmt.Errorf("producer: %w", errors.Join(errs...))
	}
	return nil
}
