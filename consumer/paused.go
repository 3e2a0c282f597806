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

// controlAge is how old the known state of the pause may be when the worker calls the handler. A paused worker also
// checks that often whether the sink was resumed.
const controlAge = time.Second

var errPaused = errors.New("the sink is paused")

// controlled records the operators' decisions about the sink, and returns an error if the sink is paused. The next
// step of a paused shard is a reclaim: the reclaim script reads the decisions again, and takes nothing while the sink
// is paused.
func (s *shard) controlled(c store.SinkControl) error {
	if s.control.Paused && !c.Paused {
		s.log.Info("the sink was resumed", zap.String("by", c.By), zap.String("why", c.Why))
	}
	s.control, s.controlAt = c, time.Now()
	if !c.Paused {
		return nil
	}
	s.lastWasReclaim, s.nextReclaim = false, time.Time{}
	return hongbao.Errorf(hongbao.ClassTransient,
		"%w by %q since %s: %q; deliveries continue when an operator resumes the sink",
		errPaused, c.By, c.At.UTC().Format(time.RFC3339), c.Why)
}

// mayCall waits until the rate allows n grants. It returns an error if the sink is paused, or if the rate was lowered
// since n was computed. The wait may take a while, so mayCall then checks for a pause again.
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

// freshControl returns an error if the sink is paused. It calls Redis only if the known decisions are older than
// controlAge. If that call fails, the known decisions continue to apply; without Redis the lease soon ends anyway.
func (s *shard) freshControl(ctx context.Context) error {
	if time.Since(s.controlAt) < controlAge {
		return nil
	}
	c, err := s.group().Control(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("could not read whether the sink is paused", zap.Error(err))
		}
		return nil
	}
	return s.controlled(c)
}

// pause waits about controlAge, because the sink is paused. The worker owns no entries during the wait.
func (s *shard) pause(ctx context.Context, err error) {
	if s.setHealth(SinkPaused, err) {
		s.log.Warn("the sink was paused; its entries wait", zap.Error(err))
	}
	retry.Pause(ctx, jitter(controlAge))
}
