package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// unrefundedAge is how long a process uses the same list of campaigns that are not refunded, because each reading reads
// every campaign of the ledger. unrefundedTime bounds one reading.
const unrefundedAge, unrefundedTime = time.Minute, 3 * time.Second

// unrefunded caches the campaigns that are not refunded, in the order in which their windows end.
type unrefunded struct {
	mu   sync.Mutex
	list []ledger.Unrefunded
	read time.Time
}

// unrefunded returns the campaigns that are not refunded, in the order in which their windows end.
func (a *App) unrefunded(ctx context.Context) ([]ledger.Unrefunded, error) {
	c := &a.refundable
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read.IsZero() && time.Since(c.read) < unrefundedAge {
		return c.list, nil
	}
	ctx, cancel := context.WithTimeout(ctx, unrefundedTime)
	defer cancel()
	list, err := a.ledger.Unrefunded(ctx)
	if err == nil {
		c.list, c.read = list, time.Now()
	}
	return list, err
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
