package app

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// unrefundedAge is how long a process uses the same list of campaigns that are not refunded, because each reading reads
// every campaign of the ledger. unrefundedTime bounds one reading. unrefundedRetry is how long a process keeps the error
// of a reading, so that callers do not wait behind each other while the ledger does not answer.
const unrefundedAge, unrefundedTime, unrefundedRetry = time.Minute, 3 * time.Second, 10 * time.Second

// unrefunded caches the campaigns that are not refunded, in the order in which their windows end, or the error of
// reading them.
type unrefunded struct {
	mu    turn.Lock // held while the ledger is read
	list  []ledger.Unrefunded
	err   error
	until time.Time
}

// unrefunded returns the campaigns that are not refunded, in the order in which their windows end.
func (a *App) unrefunded(ctx context.Context) ([]ledger.Unrefunded, error) {
	c := &a.late
	if err := c.mu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.list, c.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unrefundedTime) // other callers get the result, too
	defer cancel()
	c.list, c.err = a.ledger.Unrefunded(ctx)
	c.until = time.Now().Add(unrefundedAge)
	if c.err != nil {
		c.until = time.Now().Add(unrefundedRetry)
	}
	return c.list, c.err
}

// AddUnrefunded adds to a status the campaigns whose refund is late. If the ledger does not answer, it adds nothing.
func (a *App) AddUnrefunded(ctx context.Context, s *Status) {
	if a.Config.Ledger.DSN == "" {
		return
	}
	list, err := a.unrefunded(ctx)
	if err != nil {
		return
	}
	s.Unrefunded = []ledger.Unrefunded{}
	for _, c := range list {
		if time.Since(c.Ends) > metrics.RefundWithin {
			s.Unrefunded = append(s.Unrefunded, c)
		}
	}
}

// UnrefundedText says that a campaign's refund is late, and which command shows the next step.
func UnrefundedText(c *ledger.Unrefunded) string {
	return fmt.Sprintf("campaign %s: its window ended at %s, and it is not refunded; `hongbao campaign refund %[1]s` says what "+
		"to do", c.Campaign, c.Ends.Format(time.RFC3339))
}
