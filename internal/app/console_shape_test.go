package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
)

// A campaign that is too large to draw in time is not read again at each look, and keeps the drawing that it has.
func TestTooLargeToDraw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		later := time.Sleep //nolint:forbidigo // the clock is synctest's
		reads, slow := 0, false
		s := shapes{read: func(ctx context.Context, _ *ledger.Ledger, c *ledger.StoredCampaign, _ bool) (shape, error) {
			if reads++; slow {
				<-ctx.Done()
				return shape{}, errors.New("the connection is closed")
			}
			return shape{grants: c.Grants, spread: []model.Bin{{Granted: c.Grants}}}, nil
		}}
		c := ledger.StoredCampaign{Campaign: ledger.Campaign{Spec: hongbao.Campaign{ID: "rain"}}, Grants: 1}
		require.NoError(t, s.of(t.Context(), nil, &c).failed)
		slow, c.Grants = true, 2_000_000
		later(shapeAge)
		for range 50 { // the rest is 20 times the 3 s
			later(time.Second)
			drawn := s.of(t.Context(), nil, &c)
			require.ErrorIs(t, drawn.failed, context.DeadlineExceeded)
			require.EqualValues(t, 1, drawn.spread[0].Granted, "it is old")
		}
		require.Equal(t, 2, reads)
		slow = false
		later(shapeTime * shapeRest)
		drawn := s.of(t.Context(), nil, &c)
		require.NoError(t, drawn.failed)
		require.EqualValues(t, 2_000_000, drawn.spread[0].Granted)

		// A page that is abandoned during the reading leaves no failure for the next one.
		slow, c.Grants = true, 3_000_000
		later(shapeAge)
		left, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, s.of(left, nil, &c).failed, context.Canceled)
		slow = false
		require.EqualValues(t, 3_000_000, s.of(t.Context(), nil, &c).spread[0].Granted)
	})
}
