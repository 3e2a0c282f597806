package serve

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
)

// If Redis has lost data of an ended campaign, a user whom the ledger has paid gets already_granted, and other users
// get ended. While the ledger is down, a grab is undecided.
func TestEndedCampaignsThatRedisLost(t *testing.T) {
	t.Parallel()
	var ledgerDown atomic.Bool
	f := &fake{window: model.PublicView{State: "refunded", Lost: true}, held: func(user string) ([]hongbao.Receipt, error) {
		switch {
		case ledgerDown.Load():
			return nil, hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
		case user == "u1":
			return []hongbao.Receipt{{Packet: 7, Amount: 185, Shard: 1, Seq: 9, Time: decided, RequestID: "first"}}, nil
		case user == "gone":
			return nil, ledger.ErrArchived
		}
		return nil, nil
	}}
	s := setup(t, options{fake: f})
	grab := func(user string) *reply {
		return s.call(t, "POST", "/v1/campaigns/ended/grabs", good, as(hs().sign(t, user)))
	}
	r := grab("u1")
	require.Equal(t, http.StatusOK, r.Status, r.Text)
	require.Equal(t, "already_granted", r.Body["outcome"])
	require.Equal(t, "CNY", r.Body["currency"])
	require.EqualValues(t, 7, r.Body["receipts"].([]any)[0].(map[string]any)["packet"])
	for _, user := range []string{"u2", "gone"} {
		r = grab(user)
		require.Equal(t, "ended", r.Body["outcome"])
		require.NotContains(t, r.Body, "receipts")
	}
	ledgerDown.Store(true)
	for _, user := range []string{"u1", "u2"} {
		grab(user).Refused(t, "unavailable", user)
	}
	require.Equal(t, "sold_out", s.call(t, "POST", "/v1/campaigns/sold_out/grabs", good).Body["outcome"], "other outcomes do not read the ledger")

	whole := setup(t, options{fake: &fake{window: model.PublicView{State: "closed"}, held: f.held}})
	require.Equal(t, "ended", whole.call(t, "POST", "/v1/campaigns/ended/grabs", good).Body["outcome"],
		"an intact campaign causes no read from the ledger")
}

// Users of a lost campaign cause at most maxPaid concurrent lookups; the other users must retry.
func TestLostCampaignsAskForFewUsersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		f := &fake{window: model.PublicView{Lost: true}, held: func(string) ([]hongbao.Receipt, error) { return nil, nil }}
		s := &Server{campaignCache: newWindows(f), paying: make(chan struct{}, maxPaid), deps: Deps{Reader: &holding{f, let}}}
		results := make(chan error, maxPaid+10)
		for range maxPaid + 10 {
			go func() {
				_, err := s.paid(t.Context(), &hongbao.Grab{Campaign: "ended", User: "u1"})
				results <- err
			}()
		}
		time.Sleep(2 * paidWait) //nolint:forbidigo // the bubble's clock
		for range 10 {
			require.ErrorIs(t, <-results, errPaid)
		}
		close(let)
		for range maxPaid {
			require.NoError(t, <-results)
		}
	})
}

// holding is a Reader whose Receipts waits until let is closed.
type holding struct {
	*fake
	let chan struct{}
}

func (h *holding) Receipts(ctx context.Context, campaign, user string) (model.Receipts, error) {
	<-h.let
	return h.fake.Receipts(ctx, campaign, user)
}
