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

// Consumer is one worker of a consumer group, on all shards.
type Consumer struct {
	cfg   Config
	store *store.Store
	reads *store.Store // through the client for blocking reads
	count counters
	calls chan struct{} // has a token for each call in progress; nil if their number has no bound

	rateHome rateHome
	letters  letterCounts

	mu     sync.Mutex
	health []Health // by shard
}

// New returns a Consumer, or an error for a wrong configuration. It does not connect to anything.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st, err := store.Of(cfg.Redis, cfg.Space)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(cfg.Middleware) {
		cfg.Handler = m(cfg.Handler)
	}
	cfg.Log = cfg.Log.With(zap.String("sink", cfg.Group), zap.String("consumer", cfg.Consumer))
	c := &Consumer{cfg: cfg, store: st, reads: st.Over(cfg.Reads), health: make([]Health, st.Len())}
	if cfg.MaxCalls > 0 {
		c.calls = make(chan struct{}, cfg.MaxCalls)
	}
	for i := range c.health {
		now := time.Now()
		c.health[i] = Health{Shard: i, Code: Working, Since: now, LastStep: now}
	}
	return c, nil
}

// Run works until ctx ends, then drains. It takes no more entries, finishes the calls in flight within DrainTimeout,
// and hands the rest to the other workers at once. It returns after everything that it started has ended. Call it
// once.
//
// A shard that is Broken says so in the log and in Health. It hands back its entries, and tries again more and more
// slowly. The other shards continue. Run returns the errors of the shards that are broken when ctx ends.
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
	c.cfg.Log.Info("drained", zap.Int64("done", n.Done), zap.Int64("dead", n.Dead), zap.Int64("parked", n.Parked),
		zap.Int("left", rest))
	return c.broken()
}

// backoff returns how long an entry stays parked on a level. It is 0 for level 0, then Backoff, doubled from level to
// level, with a jitter of up to a fifth.
func (c *Consumer) backoff(level int64) time.Duration {
	if level == 0 {
		return 0
	}
	d := c.cfg.Backoff
	for ; level > 1 && d < c.cfg.MaxBackoff; level-- {
		d *= 2
	}
	return jitter(min(d, c.cfg.MaxBackoff))
}

// topLevel returns the parking level at which the backoff has reached MaxBackoff.
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
