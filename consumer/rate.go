package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// mostTurn is how long a worker waits for its turn with entries in hand. If the turn is further away it hands them
// back, and takes nothing until its turn is near.
const mostTurn = time.Second

// turnsPerSecond is into how many calls of the handler a second's grants are cut, so that they flow evenly.
const turnsPerSecond = 4

// errLater says that the sink's rate is used up for now.
var errLater = errors.New("the sink's rate is used up, the entries wait for their turn")

// errSmaller says that the rate is lower than when the portion was cut.
var errSmaller = errors.New("the sink's rate was lowered, a smaller portion is due")

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

// turn waits until the sink's rate allows n more grants. The rate is that of all workers and shards. With n 0 it only
// asks whether the turn is near.
func (s *shard) turn(ctx context.Context, n int) error {
	rate := s.rate()
	s.turnIn = 0
	if rate == 0 {
		return nil
	}
	home := shards.Of(s.cfg.Redis, s.c.layout.Home(s.cfg.Group))
	given, wait, err := home.Turn(ctx, &shards.RateCall{Sink: s.cfg.Group, PerSecond: rate, Grants: n,
		Portion: s.portion(rate), Most: mostTurn})
	switch {
	case err != nil:
		return err
	case !given:
		s.turnIn = min(wait-mostTurn/2, 2*mostTurn)
		s.lastWasReclaim, s.nextReclaim = false, time.Time{} // it takes the entries that it hands back before new ones
		return errLater
	}
	if n > 0 {
		retry.Pause(ctx, wait) // if ctx ends, so does the delivery
	}
	return nil
}

// awaitTurn refuses to take anything before the turn of a shard that was told to wait: what it took would only move
// into its hands and back. It tells Redis that the worker lives, and hears whether the rate was raised.
func (s *shard) awaitTurn(ctx context.Context) error {
	if s.turnIn == 0 {
		return nil
	}
	if _, err := s.reclaimUpTo(ctx, 0); err != nil {
		return err
	}
	return s.turn(ctx, 0)
}
