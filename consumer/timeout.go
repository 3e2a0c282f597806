package consumer

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Timeout is a middleware that ends the context of each call after d. An error that the timeout caused gets class
// Unknown, whatever class the Handler gave it, because the grant may have been done. Such an error wraps
// context.DeadlineExceeded or os.ErrDeadlineExceeded. If the Handler reported an outage, the error stays an outage, so
// the grant loses no attempt.
//
// Timeout does not change errors with other causes, or errors of hongbao.Waitingf. It does not interrupt a Handler that
// ignores its context; after Config.HandleTimeout the worker then gives up its lease.
func Timeout(d time.Duration) func(hongbao.Handler) hongbao.Handler {
	return func(next hongbao.Handler) hongbao.Handler {
		return hongbao.HandlerFunc(func(ctx context.Context, b hongbao.Batch) []error {
			limited, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			errs := next.Handle(limited, b)
			if limited.Err() == nil || ctx.Err() != nil {
				return errs
			}
			var last, shared error // equal errors become one shared error, so that the consumer halves the batch
			for i, err := range errs {
				late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
				if !late || hongbao.IsWaiting(err) {
					continue
				}
				if last == nil || !retry.Same(err, last) {
					newError := hongbao.Errorf
					if hongbao.IsOutage(err) {
						newError = hongbao.Outagef
					}
					last, shared = err, newError(hongbao.ClassUnknown, "the handler did not answer within %s: %w", d, err)
				}
				errs[i] = shared
			}
			return errs
		})
	}
}
