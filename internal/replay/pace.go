package replay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// pace bounds deliveries per second.
type pace struct {
	limiter *rate.Limiter
	batch   int // grants that may go at once: a second's at most
}

func newPace(perSecond float64, batch int) *pace {
	if perSecond == 0 {
		return &pace{limiter: rate.NewLimiter(rate.Inf, 0), batch: batch}
	}
	batch = max(1, min(batch, int(perSecond)))
	return &pace{limiter: rate.NewLimiter(rate.Limit(perSecond), batch), batch: batch}
}

// wait waits until n grants may go; n is at most batch.
func (p *pace) wait(ctx context.Context, n int) error {
	if err := p.limiter.WaitN(ctx, n); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	return nil
}

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
