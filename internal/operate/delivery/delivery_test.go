package delivery

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// In any period a Deliverer passes at most as many grants as the rate allows, plus one batch.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate         float64
		batch, wants int
	}{{100, 20, 20}, {100, 2000, 100}, {0.5, 2000, 1}, {0, 2000, 2000}} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Options{Rate: c.rate, BatchGrants: c.batch})
			require.Equal(t, c.wants, p.BatchGrants)
			start := time.Now()
			for sent := 0; sent < 50*p.BatchGrants; sent += p.BatchGrants {
				if c.rate > 0 {
					require.LessOrEqual(t, float64(sent), c.rate*time.Since(start).Seconds()+float64(p.BatchGrants)+1e-6)
				}
				require.NoError(t, p.limiter.WaitN(t.Context(), p.BatchGrants))
			}
			if c.rate > 0 {
				require.InEpsilon(t, float64(49*p.BatchGrants)/c.rate, time.Since(start).Seconds(), 0.01, "and not much slower")
			} else {
				require.Zero(t, time.Since(start))
			}
		})
	}
}

func TestPaceEnds(t *testing.T) {
	t.Parallel()
	p := New(Options{Rate: 0.001, BatchGrants: 1})
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, p.limiter.WaitN(ctx, 1))
	cancel()
	require.ErrorIs(t, p.Deliver(ctx, testkit.Batch(make([]hongbao.Grant, 1)), Results{}), context.Canceled)
}

func TestHandlerThatLies(t *testing.T) {
	t.Parallel()
	d := New(Options{Handler: liar{}, BatchGrants: 10})
	err := d.Deliver(t.Context(), testkit.Batch(make([]hongbao.Grant, 3)),
		Results{Delivered: func(context.Context, []hongbao.Grant) error { return nil }})
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

type liar struct{}

func (liar) Handle(context.Context, hongbao.Batch) []error { return make([]error, 1) }
