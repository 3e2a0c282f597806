package app

import (
	"context"
	"time"

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

// Unrefunded returns the campaigns that are not refunded, in the order in which their windows end.
func (a *App) Unrefunded(ctx context.Context) ([]ledger.Unrefunded, error) {
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
