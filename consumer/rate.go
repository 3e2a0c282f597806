package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// mostTurn is how long a worker waits for its turn with entries in hand. If the turn is further away, the worker
// hands them back, and takes nothing until its turn is near.
const mostTurn = time.Second

// turnsPerSecond is the number of calls of the handler that share a second's grants, so that the grants flow evenly.
const turnsPerSecond = 4

// errLater says that the sink's rate is used up for now.
var errLater = errors.New("the sink's rate is used up, the entries wait for their turn")

// errSmaller says that the rate is lower than when the portion was computed.
var errSmaller = errors.New("the sink's rate was lowered, a smaller portion is due")

// rate returns how many grants a second all workers may hand over; 0 for no bound.
func (s *shard) rate() int {
	if s.control.Rate != nil {
		return *s.control.Rate
	}
	return s.cfg.GrantsPerSecond
}

// portion returns how many of n grants one call hands over, so that grants flow evenly at the sink's rate.
func (s *shard) portion(n int) int {
	if rate := s.rate(); rate > 0 {
		return min(n, max(1, rate/turnsPerSecond/s.c.rateHome.split(s.c.store.Len())))
	}
	return n
}

// turn waits until the sink's rate allows n more grants. All workers and shards share the rate. If n is 0, turn only
// checks whether the turn is near.
func (s *shard) turn(ctx context.Context, n int) error {
	rate := s.rate()
	s.turnIn = 0
	if rate == 0 {
		return nil
	}
	given, wait, err := s.askTurn(ctx, rate, n)
	switch {
	case err != nil:
		return err
	case !given:
		s.turnIn = min(wait-mostTurn/2, 2*mostTurn)
		s.lastWasReclaim, s.nextReclaim = false, time.Time{} // take the returned entries before new ones
		return errLater
	}
	if n > 0 {
		retry.Pause(ctx, wait) // if ctx ends, so does the delivery
	}
	return nil
}

// askTurn asks the sink's home for the turn. While the home is unreachable, each shard has its own part of the rate:
// a grant there takes as many turns as there are shards. So the shards together stay below the rate, and each
// continues.
func (s *shard) askTurn(ctx context.Context, rate, n int) (given bool, wait time.Duration, err error) {
	call := store.RateCall{Sink: s.cfg.Group, PerSecond: rate, Grants: n, Portion: s.portion(rate), Most: mostTurn}
	home, known := s.c.store.Home(s.cfg.Group), &s.c.rateHome
	own := home.Index() == s.index
	if own || known.due() {
		bounded, cancel := context.WithTimeout(ctx, mostTurn)
		defer cancel()
		given, wait, err = home.Turn(bounded, &call)
		if own || ctx.Err() != nil || err != nil && !hongbao.IsOutage(err) {
			return given, wait, err
		}
		if known.note(err == nil) {
			s.log.Warn("the shard that counts the sink's rate went down or came back; while it is down each shard takes its "+
				"part of the rate", zap.Int("home", home.Index()), zap.Error(err))
		}
		if err == nil {
			return given, wait, nil
		}
	}
	if s.portion(n) < n {
		return false, 0, errSmaller
	}
	call.Grants, call.Portion = n*s.c.store.Len(), s.portion(rate)*s.c.store.Len()
	return s.redis.Turn(ctx, &call)
}

// homeAgain is how long a worker waits before it asks an unreachable home again.
const homeAgain = 5 * time.Second

// rateHome is a worker's knowledge of the shard that counts the sink's rate.
type rateHome struct {
	mu   sync.Mutex
	down bool
	next time.Time // when the worker asks the home again
}

// due reports whether the worker should ask the home.
func (h *rateHome) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.down || time.Now().After(h.next)
}

// note records whether the home has answered, and reports whether that has changed.
func (h *rateHome) note(answered bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.down == answered
	h.down, h.next = !answered, time.Now().Add(jitter(homeAgain))
	return changed
}

// split returns the number of parts into which the rate is divided now.
func (h *rateHome) split(shards int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return shards
	}
	return 1
}

// awaitTurn returns an error before the turn of a shard that must wait: entries that it took would only be handed
// back. Its call to Redis shows that the worker lives, and reads whether the rate was raised.
func (s *shard) awaitTurn(ctx context.Context) error {
	if s.turnIn == 0 {
		return nil
	}
	if _, err := s.reclaimUpTo(ctx, 0); err != nil {
		return err
	}
	return s.turn(ctx, 0)
}
