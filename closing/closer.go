package closing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// Ledger is what closing asks of the ledger.
type Ledger interface {
	// Refund posts the refund that belongs to a close entry, once: a repeat gives what is there. ErrSettling while the
	// ledger holds fewer grants than the entry tells.
	Refund(ctx context.Context, closed hongbao.Entry) (hongbao.Refund, error)
	// RefundOf gives the refund of a campaign; false if there is none.
	RefundOf(ctx context.Context, campaign string) (hongbao.Refund, bool, error)
}

// Locker runs fn while nobody else runs one under the same name. fn's context ends when the lock is lost.
type Locker interface {
	Do(ctx context.Context, name string, fn func(ctx context.Context) error) error
}

// lockName is the lock under which refunds are posted.
const lockName = "refund"

// Config of a Closer. Every field must be set.
type Config struct {
	Redis  redis.UniversalClient
	Space  *lua.Space
	Ledger Ledger
	Locks  Locker
	// Group is the ledger's consumer group.
	Group string
	Log   *zap.Logger
	// Poll is how often a refund that has to wait is tried, 10 ms to 1 min.
	Poll time.Duration
}

// Closer closes and refunds campaigns. It may be used at once, by many processes.
type Closer struct{ cfg Config }

// New checks the configuration.
func New(cfg Config) (*Closer, error) {
	var errs []error
	if cfg.Redis == nil || cfg.Space == nil || cfg.Ledger == nil || cfg.Locks == nil || cfg.Log == nil {
		errs = append(errs, errors.New("Redis, Space, Ledger, Locks and Log are required"))
	}
	if err := hongbao.CheckCampaignID(cfg.Group); err != nil {
		errs = append(errs, fmt.Errorf("Group %q: %w", cfg.Group, err))
	}
	if cfg.Poll < 10*time.Millisecond || cfg.Poll > time.Minute {
		errs = append(errs, fmt.Errorf("Poll is %s: want 10ms to 1m", cfg.Poll))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("closing: %w", errors.Join(errs...))
	}
	return &Closer{cfg: cfg}, nil
}

// Standing is how far the end of a campaign is.
type Standing struct {
	// Close is the close entry; its Kind is empty once the campaign has left Redis.
	Close hongbao.Entry
	// Finished is how far the ledger's group is on the campaign's shard, at most up to the close.
	Finished int64
	// Refund is nil while there is none.
	Refund *hongbao.Refund
}

// Amount is what is to be refunded, or was.
func (s *Standing) Amount() hongbao.Amount {
	if s.Refund != nil {
		return s.Refund.Amount
	}
	return s.Close.Close.LeftAmount
}

// Close closes the campaign, for ever. Before the end of its window it is refused unless early is set. A campaign that
// is closed, refunded or gone from Redis is no error: the answer is the same.
func (c *Closer) Close(ctx context.Context, id string, early bool) (Standing, error) {
	k := c.cfg.Space.Home(id)
	e, err := lua.Close(ctx, c.cfg.Redis, k, id, early)
	return c.standing(ctx, id, e, err)
}

// Standing tells how far the end of a campaign is, and changes nothing. lua.ErrNotClosed if it was not closed.
func (c *Closer) Standing(ctx context.Context, id string) (Standing, error) {
	e, err := lua.CloseOf(ctx, c.cfg.Redis, c.cfg.Space.Home(id), id)
	return c.standing(ctx, id, e, err)
}

// standing adds what the ledger and the group tell to a close entry, or to why there is none.
func (c *Closer) standing(ctx context.Context, id string, e hongbao.Entry, notThere error) (Standing, error) {
	if notThere != nil && !errors.Is(notThere, lua.ErrNotInRedis) {
		return Standing{}, notThere
	}
	out := Standing{Close: e}
	refund, found, err := c.cfg.Ledger.RefundOf(ctx, id)
	if err != nil {
		return out, err
	}
	if found {
		out.Refund = &refund
	}
	if notThere != nil {
		if !found {
			return out, notThere
		}
		return out, nil
	}
	finished, exists, err := lua.GroupFinished(ctx, c.cfg.Redis, c.cfg.Space.Home(id), c.cfg.Group, e.Seq)
	if err != nil {
		return out, err
	}
	if exists {
		out.Finished = finished
	}
	return out, nil
}

// Refund posts the refund of a closed campaign, or gives the one that is there. amount must be exactly what is refunded:
// it shows that the caller knows which campaign he means. While the ledger does not hold every grant up to the close
// the error is ErrSettling; wait is how long that is tried again, 0 for not at all.
func (c *Closer) Refund(ctx context.Context, id string, amount hongbao.Amount, wait time.Duration) (hongbao.Refund, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	tick := time.NewTicker(c.cfg.Poll)
	defer tick.Stop()
	for {
		r, err := c.tryRefund(ctx, id, amount)
		if err == nil || !errors.Is(err, hongbao.ErrSettling) || wait == 0 {
			return r, err
		}
		select {
		case <-tick.C:
		case <-over.C:
			c.cfg.Log.Warn("ALARM: a refund waits for the settlers for too long: are they running, and does the ledger answer?",
				zap.String("campaign", id), zap.Duration("waited", wait), zap.Error(err))
			return r, err
		case <-ctx.Done():
			return r, fmt.Errorf("%w; it ended while waiting: %w", err, context.Cause(ctx))
		}
	}
}

// tryRefund goes through all steps once. The lock is held for one try only, so that one campaign that waits for its
// settlers does not hold up the others.
func (c *Closer) tryRefund(ctx context.Context, id string, amount hongbao.Amount) (r hongbao.Refund, err error) {
	s, err := c.Standing(ctx, id)
	if err != nil {
		return r, err
	}
	if has := s.Amount(); has != amount {
		return r, hongbao.Errorf(hongbao.Permanent, "refund campaign %s: the amount is %d minor units, not %d; nothing was moved. "+
			"Is it the right campaign?", id, has, amount)
	}
	if s.Refund == nil {
		if s.Finished < s.Close.Seq {
			return r, hongbao.Errorf(hongbao.Transient, "refund campaign %s: %w: group %s has finished shard %d up to event %d, the close is event %d",
				id, hongbao.ErrSettling, c.cfg.Group, s.Close.Shard, s.Finished, s.Close.Seq)
		}
		err := c.cfg.Locks.Do(ctx, lockName, func(ctx context.Context) error {
			r, err = c.cfg.Ledger.Refund(ctx, s.Close)
			return err
		})
		if errors.Is(err, hongbao.ErrSettling) { // nobody is going to bring what is missing
			return r, hongbao.Errorf(hongbao.Conflict, "refund campaign %s: group %s has finished everything up to its close, but grants are missing in "+
				"the ledger: decide its dead letters and its quarantine first, `hongbao audit --campaign %s` names them (%v)", id, c.cfg.Group, id, err)
		}
		if err != nil {
			return r, err
		}
		c.cfg.Log.Info("refunded", zap.String("campaign", id), zap.Int64("amount", int64(r.Amount)), zap.Int64("packets", r.Packets))
	} else {
		r = *s.Refund
	}
	if _, err := lua.Refunded(ctx, c.cfg.Redis, c.cfg.Space.Home(id), id); err != nil && !errors.Is(err, lua.ErrNotInRedis) {
		return r, fmt.Errorf("the refund of campaign %s is posted, but could not be noted in Redis; run it again: %w", id, err)
	}
	return r, nil
}
