package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// The codes in Health.Code.
const (
	// Working: the shard reads entries and delivers them to the sink.
	Working = "working"
	// SinkPaused: an operator has paused the sink. The shard owns no entries, and waits until an operator resumes the
	// sink.
	SinkPaused = "sink_paused"
	// SinkDown: the sink is unreachable. The shard keeps its entries and tries again.
	SinkDown = "sink_down"
	// RedisDown: calls to Redis fail. The shard tries again within seconds.
	RedisDown = "redis_down"
	// ShardFrozen: Redis was restarted, or has lost writes. The shard waits until it is opened again.
	ShardFrozen = "shard_frozen"
	// ShardBroken: going on could do harm, so a person has to look. The shard tries again with a backoff of up to 30
	// s.
	ShardBroken = "shard_broken"
)

// Health is the state of one shard of a worker.
type Health struct {
	Shard int
	Code  string
	Since time.Time // when the shard got this code
	Err   error     // why the shard does not work; nil if it does
	// LastStep is the time of the shard's last activity: a read, the end of a bounded wait, or the begin or end of a
	// call of the handler. An idle shard reads repeatedly, so its LastStep advances. It does not advance while a
	// handler hangs.
	LastStep time.Time
}

// Health returns the state of each shard. It is safe for concurrent use.
func (c *Consumer) Health() []Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.health)
}

// setHealth records the code and error of the shard, and reports whether the code has changed.
func (s *shard) setHealth(code string, err error) (changed bool) {
	if code != Working { // assume the largest entries: anything may arrive while the shard waits
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

// stepped sets LastStep to now.
func (s *shard) stepped() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.health[s.index].LastStep = time.Now()
}

// broken joins the errors of the shards that are broken now.
func (c *Consumer) broken() error {
	var errs []error
	for _, h := range c.Health() {
		if h.Code == ShardBroken {
			errs = append(errs, h.Err)
		}
	}
	return errors.Join(errs...)
}
