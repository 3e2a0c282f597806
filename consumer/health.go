package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// The codes of a shard's Health.
const (
	// Working: the shard reads, and its grants reach the sink.
	Working = "working"
	// SinkPaused: a person has paused the sink. The shard has no entries, and waits until a person resumes the sink.
	SinkPaused = "sink_paused"
	// SinkDown: the sink is out of reach. The shard waits with its entries.
	SinkDown = "sink_down"
	// RedisDown: calls to Redis fail; the shard tries again within seconds.
	RedisDown = "redis_down"
	// ShardFrozen: Redis was restarted, or went back in time. The shard waits until it is opened again.
	ShardFrozen = "shard_frozen"
	// ShardBroken: to continue would do harm, and a person has to look. The shard tries again, in the end every 30 s.
	ShardBroken = "shard_broken"
)

// Health is the state of one shard of a worker.
type Health struct {
	Shard int
	Code  string
	Since time.Time // the shard has had this code since then
	Err   error     // why; nil if it works
	// LastStep is when the shard last did something: read, waited a bounded time, or called the handler and got its
	// answer. An idle shard reads again and again. A handler that ignores its context delays the next step.
	LastStep time.Time
}

// Health returns the state of each shard. It may be called at any time.
func (c *Consumer) Health() []Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.health)
}

// setHealth records the state of the shard. It reports whether the code has changed.
func (s *shard) setHealth(code string, err error) (changed bool) {
	if code != Working { // entries that arrive meanwhile may be of any size
		s.perEntry = stream.MaxEntryGrants
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	h := &s.c.health[s.index]
	h.LastStep = time.Now()
	if changed = h.Code != code; changed {
		h.Code, h.Since = code, h.LastStep
	}
	h.Err = err
	return changed
}

// stepped records that the shard has done something.
func (s *shard) stepped() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.health[s.index].LastStep = time.Now()
}

// broken returns the joined errors of the shards that are broken now.
func (c *Consumer) broken() error {
	var errs []error
	for _, h := range c.Health() {
		if h.Code == ShardBroken {
			errs = append(errs, h.Err)
		}
	}
	return errors.Join(errs...)
}
