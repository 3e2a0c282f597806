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

// controlAge is the highest age of the worker's knowledge of a pause when it calls the handler. It is also how often
// a paused worker checks whether it may continue.
const controlAge = time.Second

var errPaused = errors.New("the sink is paused")

// controlled records people's decisions about the sink. It returns an error if the sink is paused. The worker's next
// step is then a reclaim, which reads the decisions again, and takes nothing until the sink is resumed.
func (s *shard) controlled(c store.SinkControl) error {
	if s.control.Paused && !c.Paused {
		s.log.Info("the sink was resumed", zap.String("by", c.By), zap.String("why", c.Why))
	}
	s.control, s.controlAt = c, time.Now()
	if !c.Paused {
		return nil
	}
	s.lastWasReclaim, s.nextReclaim = false, time.Time{}
	return hongbao.Errorf(hongbao.ClassTransient, "%w by %q since %s: %q; it continues when a person resumes it",
		errPaused, c.By, c.At.UTC().Format(time.RFC3339), c.Why)
}

// mayCall returns an error if the sink is paused, or if the rate is lower than when the n grants were counted. It
// waits for their turn at the rate. The turn may take a while, so mayCall then checks for a pause again.
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

// freshControl returns an error if the sink is paused. The decisions that were read with the batch are usually fresh
// enough. If the read fails, the earlier decisions continue to apply, since the lease ends soon.
func (s *shard) freshControl(ctx context.Context) error {
	if time.Since(s.controlAt) < controlAge {
		return nil
	}
	c, err := s.redis.SinkControl(ctx, s.cfg.Group)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("could not read whether the sink is paused", zap.Error(err))
		}
		return nil
	}
	return s.controlled(c)
}

// pause waits a while because the sink is paused. The worker has no entries meanwhile.
func (s *shard) pause(ctx context.Context, err error) {
	if s.setHealth(SinkPaused, err) {
		s.log.Warn("the sink was paused, its entries wait", zap.Error(err))
	}
	retry.Pause(ctx, jitter(controlAge))
}
