package consumer

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// controlAge is how old the worker's knowledge of a pause may be when it calls the handler, and how often a paused
// worker asks whether it may go on.
const controlAge = time.Second

var errPaused = errors.New("the sink is paused")

// controlled notes what people have told the workers of the sink. It refuses a paused one: then the next thing that the
// worker does is to reclaim, which asks again, and takes nothing until the sink goes on.
func (s *shard) controlled(c store.SinkControl) error {
	if s.control.Paused && !c.Paused {
		s.log.Info("the sink goes on", zap.String("by", c.By), zap.String("why", c.Why))
	}
	s.control, s.controlAt = c, time.Now()
	if !c.Paused {
		return nil
	}
	s.lastWasReclaim, s.nextReclaim = false, time.Time{}
	return hongbao.Errorf(hongbao.ClassTransient, "%w by %q since %s: %q; it goes on when a person resumes it",
		errPaused, c.By, c.At.UTC().Format(time.RFC3339), c.Why)
}

// mayCall refuses a call of the handler with n grants while the sink is paused, or if the rate is lower than when
// they were counted, and waits for their turn at the rate. The turn may be a while ahead, so it looks for a pause
// again then.
func (s *shard) mayCall(ctx context.Context, n int) error {
	if err := s.freshControl(ctx); err != nil {
		return err
	}
	if s.portion(n) < n {
		return errSmaller
	}
	if err := s.turn(ctx, n); err != nil {
		return err
	}
	return s.freshControl(ctx)
}

// freshControl refuses a paused sink. What was read with the batch is fresh enough as a rule. A shard that can't tell
// is believed to stand as before: its lease ends soon.
func (s *shard) freshControl(ctx context.Context) error {
	if time.Since(s.controlAt) < controlAge {
		return nil
	}
	c, err := s.redis.SinkControl(ctx, s.cfg.Group)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("Redis can't tell whether the sink is paused", zap.Error(err))
		}
		return nil
	}
	return s.controlled(c)
}

// pause waits while the sink is paused. The worker holds nothing meanwhile.
func (s *shard) pause(ctx context.Context, err error) {
	if s.stands(SinkPaused, err) {
		s.log.Warn("the sink was paused, its entries wait", zap.Error(err))
	}
	retry.Pause(ctx, jitter(controlAge))
}
