package consumer

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

func grants(n int) []hongbao.Grant { return make([]hongbao.Grant, n) }

// If the timeout ended the call of a grant, its error is Unknown, even if the handler returned Permanent. Other errors
// and results do not change.
func TestTimeoutIsUnknown(t *testing.T) {
	t.Parallel()
	refused := hongbao.Errorf(hongbao.ClassPermanent, "no such account")
	held := hongbao.Waitingf("another worker has it: %w", context.DeadlineExceeded)
	slow := hongbao.HandlerFunc(func(ctx context.Context, _ hongbao.Batch) []error {
		<-ctx.Done()
		return []error{nil, refused, ctx.Err(), hongbao.Errorf(hongbao.ClassPermanent, "credit: %w", ctx.Err()),
			hongbao.Errorf(hongbao.ClassPermanent, "read: %w", os.ErrDeadlineExceeded),
			hongbao.Outagef(hongbao.ClassTransient, "the bank is down: %w", ctx.Err()), held}
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		errs := Timeout(3*time.Second)(slow).Handle(t.Context(), testkit.Batch(grants(7)))
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.NoError(t, errs[0])
		require.Equal(t, refused, errs[1])
		require.Equal(t, held, errs[6])
		for i, err := range errs[2:6] {
			require.Equal(t, i == 3, hongbao.IsOutage(err), "%v", err)
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, "within 3s")
		}
	})
	all := hongbao.HandlerFunc(func(ctx context.Context, _ hongbao.Batch) []error {
		<-ctx.Done()
		return []error{ctx.Err(), ctx.Err()}
	})
	shared := Timeout(time.Millisecond)(all).Handle(t.Context(), testkit.Batch(grants(2)))
	require.True(t, retry.Same(shared[0], shared[1]), "equal errors, so that a slow batch is halved")
	quick := hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil })
	require.Nil(t, Timeout(time.Hour)(quick).Handle(t.Context(), testkit.Batch(grants(1))))
	lost, cancel := context.WithCancel(t.Context())
	cancel() // as if the lease were lost: the timeout did not cause this error
	errs := Timeout(time.Hour)(slow).Handle(lost, testkit.Batch(grants(7)))
	require.Equal(t, context.Canceled, errs[2])
}

func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 4)
	var seen []string
	named := func(name string) func(hongbao.Handler) hongbao.Handler {
		return func(next hongbao.Handler) hongbao.Handler {
			return hongbao.HandlerFunc(func(ctx context.Context, batch hongbao.Batch) []error {
				grants := batch.Grants
				seen = append(seen, fmt.Sprint(name, " ", len(grants)))
				return next.Handle(ctx, testkit.Batch(grants))
			})
		}
	}
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Middleware = []func(hongbao.Handler) hongbao.Handler{named("outer"), named("inner")}
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	require.Equal(t, []string{"outer 4", "inner 4"}, seen)
	cfg.Middleware = append(cfg.Middleware, nil)
	_, err := New(cfg)
	require.ErrorContains(t, err, "Middleware has a nil")
}
