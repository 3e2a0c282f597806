package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// mostTurn is how long a worker waits for its turn with entries in hand. If the turn is further away it hands them
// back, and rests for as long.
const mostTurn = time.Second

// turnsPerSecond is into how many calls of the handler a second's grants are cut, so that they flow evenly.
const turnsPerSecond = 4

// errLater says that the sink's rate is used up for now.
var errLater = errors.New("the sink's rate is used up, the entries wait for their turn")

// rate is how many grants a second all workers may hand over; 0 for no bound.
func (s *shard) rate() int {
	if s.control.Rate != nil {
		return *s.control.Rate
	}
	return s.cfg.GrantsPerSecond
}

// portion is how many of n grants are handed over by one call, so that grants flow evenly at the sink's rate.
func (s *shard) portion(n int) int {
	if rate := s.rate(); rate > 0 {
		return min(n, max(1, rate/turnsPerSecond))
	}
	return n
}

// turn waits until the sink's rate allows n more grants. The rate is that of all workers and shards.
func (s *shard) turn(ctx context.Context, n int) error {
	rate := s.rate()
	if rate == 0 {
		return nil
	}
	home := shards.Of(s.cfg.Redis, s.c.layout.Home(s.cfg.Group))
	given, wait, err := home.Turn(ctx, &shards.RateCall{Sink: s.cfg.Group, PerSecond: rate, Grants: n, Most: mostTurn})
	switch {
	case err != nil:
		return err
	case !given:
		return errLater
	}
	retry.Pause(ctx, wait) // if ctx ends, so does the delivery
	return nil
}
