package remote

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// Ledger has what the remote has credited, and what may have been asked for. Package ledger's Settler is one.
type Ledger interface {
	// Begin notes durably that credits are about to be asked for, unless the ledger has them or they were noted
	// before. held is what the ledger has of the grants' packets, for any user, or the very same grants that it put
	// aside for a person. before is what was noted earlier; a credit there belongs to this call if Taken is set. After
	// an error nothing was noted, unless its class is Unknown.
	Begin(ctx context.Context, call payment.Asking, grants []hongbao.Grant) (held []hongbao.Grant,
		before []payment.Pending, err error)
	// Record gets the grants that the remote has certainly credited. Nil means that the ledger has them durably and
	// deleted their notes. Otherwise there is one error for each grant, nil for those it has. A repeat changes nothing.
	Record(ctx context.Context, grants []hongbao.Grant) []error
	// Forget deletes the notes of a batch: certainly nothing was booked.
	Forget(ctx context.Context, batch int64, grants []hongbao.Grant) error
	// Pending returns, in pages, the noted credits that no worker has begun for the time idle.
	Pending(ctx context.Context, idle time.Duration, after hongbao.Grant, limit int) ([]payment.Pending, error)
}

// Campaigns knows what was planned. It must be safe for concurrent use.
type Campaigns interface {
	// Amount returns the planned amount of a packet, and false if the plan has no such packet.
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
	// Currency returns the campaign's currency.
	Currency(ctx context.Context, campaign string) (string, error)
}
