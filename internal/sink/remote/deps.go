package remote

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// Ledger holds what the remote has credited, and what may have been asked for. Package ledger's Settler is one.
type Ledger interface {
	// Begin notes durably that credits are about to be asked for, unless the ledger holds them or that was noted
	// before. held is what the ledger has of the grants' packets, whoever has them there, or the very same grants
	// that it put aside for a person; before is what was noted earlier, and the call's now where Taken says so. After
	// an error nothing was noted, unless its class is Unknown.
	Begin(ctx context.Context, call payment.Asking, grants []hongbao.Grant) (held []hongbao.Grant,
		before []payment.Pending, err error)
	// Record is handed the grants that the remote has certainly credited. Nil means that it holds them durably and
	// notes them no more; else there is an error a grant, nil for those it holds. A repeat changes nothing.
	Record(ctx context.Context, grants []hongbao.Grant) []error
	// Forget ends the notes of a batch: certainly nothing was booked.
	Forget(ctx context.Context, batch int64, grants []hongbao.Grant) error
	// Pending gives what is noted and nobody has begun for the time idle, in pages.
	Pending(ctx context.Context, idle time.Duration, after hongbao.Grant, limit int) ([]payment.Pending, error)
}

// Campaigns tells what was planned. It must be safe for use by many workers at once.
type Campaigns interface {
	// Amount gives the planned amount of a packet, and false if the plan has no such packet.
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
	// Currency gives the campaign's currency.
	Currency(ctx context.Context, campaign string) (string, error)
}
