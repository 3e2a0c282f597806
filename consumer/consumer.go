package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Consumer is one worker of a consumer group, on all shards.
type Consumer struct {
	cfg   Config
	count counters
}

// New checks the configuration. It talks to nobody yet.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Log = cfg.Log.With(zap.String("sink", cfg.Group), zap.String("consumer", cfg.Consumer))
	return &Consumer{cfg: cfg}, nil
}

// Run works until ctx ends, then drains: it takes no more, finishes what is in flight within DrainTimeout, and hands
// the rest to the other workers at once. It returns after everything it started has ended. Call it once.
//
// A shard that is Broken stops by itself, is reported at once in the log, and its error is returned in the end; the other shards
// go on. When all shards are broken Run returns before ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	errs, left := make([]error, c.cfg.Space.Len()), make([]int, c.cfg.Space.Len())
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			s := newShard(c, i)
			if errs[i] = s.run(ctx); errs[i] != nil {
				s.log.Error("shard stopped: it is broken, a person has to look", zap.Error(errs[i]))
			}
			left[i] = s.left
		})
	}
	wg.Wait()
	n, rest := c.Stats(), 0
	for i := range left {
		rest += left[i]
	}
	c.cfg.Log.Info("drained", zap.Int64("done", n.Done), zap.Int64("dead", n.Dead), zap.Int64("parked", n.Parked),
		zap.Int("left", rest))
	return errors.Join(errs...)
}

// backoff is how long an entry stays parked on a level: level 0 not at all, then doubled from level to level, with
// jitter of a fifth up or down.
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

// topLevel is the parking level at which the backoff has reached MaxBackoff.
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

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
