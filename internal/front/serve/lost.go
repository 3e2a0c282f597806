package serve

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
)

const (
	// maxPaid is the maximum number of concurrent lookups of users of lost campaigns. paidWait is how long a grab waits
	// for a free slot.
	maxPaid  = 16
	paidWait = 500 * time.Millisecond
)

var errPaid = errors.New("too many users of lost campaigns are being looked up")

// paid returns a user's receipts, from Redis and the ledger, if the campaign has ended and Redis has lost data of it.
// For other campaigns it returns no receipts. The answer "ended" is final, so a user whom the ledger has paid must not
// get it. If the ledger does not answer, the grab stays undecided.
func (s *Server) paid(ctx context.Context, g *hongbao.Grab) (model.Receipts, error) {
	window, err := s.campaignCache.get(ctx, g.Campaign)
	if err != nil {
		return model.Receipts{}, unread(err)
	}
	if !window.Lost {
		return model.Receipts{}, nil
	}
	turn := time.NewTimer(paidWait)
	defer turn.Stop()
	select {
	case s.paying <- struct{}{}:
		defer func() { <-s.paying }()
	case <-turn.C:
		return model.Receipts{}, &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: retryAfter, Cause: errPaid}
	case <-ctx.Done():
		return model.Receipts{}, ctx.Err()
	}
	out, err := s.deps.Reader.Receipts(ctx, g.Campaign, g.User)
	if errors.Is(err, ledger.ErrArchived) {
		return model.Receipts{}, nil
	}
	if err != nil {
		return model.Receipts{}, unread(err)
	}
	return out, nil
}
