package consumer

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Timeout is a middleware that ends the context of each call after d. An error that results from it is of class
// Unknown, whatever the Handler made of it, because no one knows whether the grant was done. That applies to errors
// that wrap context.DeadlineExceeded or os.ErrDeadlineExceeded. An error that the Handler calls an outage stays an
// outage, so the grant loses no attempt. Errors of other causes are unchanged, and so are those of hongbao.Heldf. A
// Handler that ignores its context is not interrupted; Config.HandleTimeout ends its lease in the end.
func Timeout(d time.Duration) func(hongbao.Handler) hongbao.Handler {
	return func(next hongbao.Handler) hongbao.Handler {
		return hongbao.HandlerFunc(func(ctx context.Context, grants []hongbao.Grant) []error {
			limited, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			errs := next.Handle(limited, grants)
			if limited.Err() == nil || ctx.Err() != nil {
				return errs
			}
			var last, shared error // of all grants: the consumer then halves the batch
			for i, err := range errs {
				late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
				if !late || hongbao.IsHeld(err) {
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
