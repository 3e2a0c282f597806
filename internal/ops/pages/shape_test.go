package pages

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

// A campaign has too many grants to draw in time. It is not read again for each page, and the page shows the old
// drawing.
func TestTooLargeToDraw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		later := time.Sleep //nolint:forbidigo // synctest has a fake clock
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
		for range 50 { // less than 20 times the 3 s of the failed reading
			later(time.Second)
			drawn := s.of(t.Context(), nil, &c)
			require.ErrorIs(t, drawn.failed, context.DeadlineExceeded)
			require.EqualValues(t, 1, drawn.spread[0].Granted, "the old drawing")
		}
		require.Equal(t, 2, reads)
		slow = false
		later(shapeTime * shapeRest)
		drawn := s.of(t.Context(), nil, &c)
		require.NoError(t, drawn.failed)
		require.EqualValues(t, 2_000_000, drawn.spread[0].Granted)

		// A user leaves a page during the reading. The next page shows no error.
		slow, c.Grants = true, 3_000_000
		later(shapeAge)
		left, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, s.of(left, nil, &c).failed, context.Canceled)
		slow = false
		require.EqualValues(t, 3_000_000, s.of(t.Context(), nil, &c).spread[0].Granted)
	})
}
