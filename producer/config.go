package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Config of a Producer. Take DefaultConfig and fill in Redis, Space and Deployment; a zero elsewhere is refused.
type Config struct {
	// Redis is a *redis.Client or *redis.ClusterClient with ContextTimeoutEnabled, and without ReadOnly, RouteByLatency
	// and RouteRandomly. New refuses others.
	Redis redis.UniversalClient
	Space hongbao.Space
	// Deployment is the deployment's id. A Redis of another one, or with another number of shards, is refused.
	Deployment string
	// Log is told of alarms: a Redis that lost data, its append-only file or noeviction. Each server is looked at once a
	// second for it. nil: nobody looks.
	Log *zap.Logger
	// MaxBacklog is how many events of a shard may be unfinished, by its slowest declared group, before grabs are
	// answered busy. 1 to 1e9.
	MaxBacklog int64
	// InFlight is how many calls of one campaign are under way at once. 1 to 16; two is fastest.
	InFlight int
	// MaxWaiting is how many grabs of one campaign may wait for a call. 1 to 1e6.
	MaxWaiting int
	// CallTimeout bounds one call with all its repeats. 1 ms to 1 min.
	CallTimeout time.Duration
	// UndecidedTimeout bounds how long one grab is repeated while its outcome is undecided. 0 to 1 min; 0 for not at all.
	UndecidedTimeout time.Duration
	// DurabilityTimeout bounds the wait for a replica or for the disk. 1 ms to 1 min.
	DurabilityTimeout time.Duration
}

// DefaultConfig has every default but Redis, Space, Deployment and Log.
func DefaultConfig() Config {
	return Config{
		MaxBacklog: 5_000_000, InFlight: 2, MaxWaiting: 100_000, CallTimeout: 5 * time.Second,
		UndecidedTimeout: time.Second, DurabilityTimeout: time.Second,
	}
}

func (c *Config) check() (*shards.Layout, error) {
	var errs []error
	layout, err := shards.NewLayout(c.Space)
	if err != nil {
		errs = append(errs, err)
	}
	if c.Redis == nil || c.Deployment == "" {
		errs = append(errs, errors.New("Redis and Deployment are required"))
	} else {
		errs = append(errs, checkClient(c.Redis)...)
	}
	within := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d: want %d to %d", name, v, low, high))
		}
	}
	span := func(name string, v, low time.Duration) {
		if v < low || v > time.Minute {
			errs = append(errs, fmt.Errorf("%s is %s: want %s to 1m", name, v, low))
		}
	}
	within("MaxBacklog", c.MaxBacklog, 1, 1e9)
	within("InFlight", int64(c.InFlight), 1, 16)
	within("MaxWaiting", int64(c.MaxWaiting), 1, 1e6)
	span("CallTimeout", c.CallTimeout, time.Millisecond)
	span("UndecidedTimeout", c.UndecidedTimeout, 0)
	span("DurabilityTimeout", c.DurabilityTimeout, time.Millisecond)
	if len(errs) > 0 {
		return nil, fmt.Errorf("producer: %w", errors.Join(errs...))
	}
	return layout, nil
}
