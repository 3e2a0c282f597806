package consumer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/store"
)

// Consumer is one worker of a consumer group. It works on all shards.
type Consumer struct {
	cfg   Config
	log   *zap.Logger
	store *store.Store
	count counters
	calls chan struct{} // holds one token per call in progress; nil if MaxCalls is 0

	rateHome rateHome
	letters  letterCounts

	mu     sync.Mutex
	health []Health // by shard
}

// New returns a Consumer, or an error that names every problem of the configuration. It opens no connection.
func New(cfg Config) (*Consumer, error) {
	if cfg.Consumer == "" {
		cfg.Consumer = store.WorkerName("")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st := cfg.Deployment.Store()
	for _, m := range slices.Backward(cfg.Middleware) {
		cfg.Handler = m(cfg.Handler)
	}
	log := cfg.Deployment.Log().With(zap.String("sink", cfg.Group), zap.String("consumer", cfg.Consumer))
	c := &Consumer{cfg: cfg, log: log, store: st, health: make([]Health, st.Len())}
	if cfg.MaxCalls > 0 {
		c.calls = make(chan struct{}, cfg.MaxCalls)
	}
	for i := range c.health {
		now := time.Now()
		c.health[i] = Health{Shard: i, Code: Working, Since: now, LastStep: now}
	}
	return c, nil
}

// Run delivers entries until ctx ends, and then drains the worker. During the drain it takes no new entries, waits up
// to DrainTimeout for the calls in flight, and returns all other entries to the other workers at once. When Run
// returns, all its goroutines have ended. Call it once.
//
// A shard that gets a Broken error logs an alarm and reports ShardBroken in Health. It returns its entries to the
// other workers and retries with a growing backoff, while the other shards continue. Run returns the errors of the
// shards that are broken when ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	left := make([]int, c.store.Len())
	var wg sync.WaitGroup
	for i := range left {
		wg.Go(func() { left[i] = newShard(c, i).run(ctx) })
	}
	wg.Wait()
	n, rest := c.Stats(), 0
	for i := range left {
		rest += left[i]
	}
	c.log.Info("drained", zap.Int64("done", n.Done), zap.Int64("dead", n.Dead), zap.Int64("parked", n.Parked),
		zap.Int("left", rest))
	return c.broken()
}

// backoff returns how long an entry stays parked on a level: 0 on level 0, Backoff on level 1, and twice as long on
// each further level, up to MaxBackoff.
func (c *Consumer) backoff(level int64) time.Duration {
	if level == 0 {
		return 0
	}
	d := c.cfg.Backoff
	for ; level > 1 && d < c.cfg.MaxBackoff; level-- {
		d *= 2
	}
	return min(d, c.cfg.MaxBackoff)
}

// topLevel returns the lowest parking level whose backoff is MaxBackoff.
func (c *Consumer) topLevel() int64 {
	level := int64(1)
	for d := c.cfg.Backoff; d < c.cfg.MaxBackoff; level++ {
		d *= 2
	}
	return level
}

func jitter(d time.Duration) time.Duration {
	if d < 5 {
		return d
	}
	return d - d/5 + rand.N(2*d/5)
}
