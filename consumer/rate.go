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

// mostTurn is how long a worker with entries in hand waits for its turn. If the turn comes later, the worker hands the
// entries back, and takes none until its turn is near.
const mostTurn = time.Second

// turnsPerSecond is the number of calls over which the grants of a second are spread, so that the load is even.
const turnsPerSecond = 4

// errLater means that the sink's rate is used up for now.
var errLater = errors.New("the sink's rate is used up; the entries wait for their turn")

// errSmaller means that the rate was lowered after the portion was computed.
var errSmaller = errors.New("the sink's rate was lowered, so the portion must be smaller")

// rate returns how many grants all workers together may deliver in a second; 0 means no limit.
func (s *shard) rate() int {
	if s.control.Rate != nil {
		return *s.control.Rate
	}
	return s.cfg.GrantsPerSecond
}

// portion returns how many of n grants one call may deliver, so that the load is even.
func (s *shard) portion(n int) int {
	if rate := s.rate(); rate > 0 {
		return min(n, max(1, rate/turnsPerSecond/s.c.rateHome.split(s.c.store.Len())))
	}
	return n
}

// turn waits until the sink's rate, which all workers and shards share, allows n more grants. If the wait would be
// longer than mostTurn, it returns errLater at once. With n 0 it only checks whether the turn is near.
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
		s.lastWasReclaim, s.nextReclaim = false, time.Time{} // reclaim before the next read
		return errLater
	}
	if n > 0 {
		retry.Pause(ctx, wait) // if ctx ends, the caller notices
	}
	return nil
}

// askTurn asks the sink's home shard for a turn of n grants. While the home is unreachable, each shard counts its own
// part of the rate: a grant then takes as many turns as there are shards. So all shards continue, and together they
// stay below the rate.
func (s *shard) askTurn(ctx context.Context, rate, n int) (given bool, wait time.Duration, err error) {
	call := store.RateCall{Sink: s.cfg.Group, PerSecond: rate, Grants: n, Portion: s.portion(rate), Most: mostTurn}
	home, known := s.c.store.Home(s.cfg.Group), &s.c.rateHome
	own := home.Index() == s.index
	if own || known.due() {
		bounded, cancel := context.WithTimeout(ctx, mostTurn)
		defer cancel()
		given, wait, err = home.ReserveRate(bounded, &call)
		if own || ctx.Err() != nil || err != nil && !hongbao.IsOutage(err) {
			return given, wait, err
		}
		if known.note(err == nil) {
			s.log.Warn("the shard that counts the sink's rate went down or is back; while it is down, each shard takes its "+
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
	return s.at.ReserveRate(ctx, &call)
}

// homeAgain is how long a worker waits before it asks an unreachable home shard again.
const homeAgain = 5 * time.Second

// rateHome knows whether the shard that counts the sink's rate was reachable at the last call.
type rateHome struct {
	mu   sync.Mutex
	down bool
	next time.Time // when to ask an unreachable home shard again
}

// due reports whether it is time to ask the home shard.
func (h *rateHome) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.down || time.Now().After(h.next)
}

// note records whether the home shard has answered, and reports whether this differs from the last call.
func (h *rateHome) note(answered bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.down == answered
	h.down, h.next = !answered, time.Now().Add(jitter(homeAgain))
	return changed
}

// split returns into how many parts the rate is divided: one, or one per shard while the home is unreachable.
func (h *rateHome) split(shards int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return shards
	}
	return 1
}

// awaitTurn checks, before the shard takes entries, whether its turn at the rate is near. Entries taken too early
// would only be handed back. The reclaim with count 0 takes nothing, but shows that the worker is alive and reads the
// current rate.
func (s *shard) awaitTurn(ctx context.Context) error {
	if s.turnIn == 0 {
		return nil
	}
	if _, err := s.reclaimUpTo(ctx, 0); err != nil {
		return err
	}
	return s.turn(ctx, 0)
}
