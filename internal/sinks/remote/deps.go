package remote

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// Ledger stores which credits the remote has booked, and which may have been requested. Package ledger's Settler
// implements it.
type Ledger interface {
	// Begin durably stores the grants as pending before their credits are requested. It skips grants that are already
	// recorded or pending. held has the ledger's grants of the same packets, even if they have another user, and the
	// same grants if they are in quarantine: those that are aside are neither requested nor recorded. before has the
	// rows that were already pending; a row with Taken set now belongs to this call. After an error nothing was stored,
	// unless its class is Unknown.
	Begin(ctx context.Context, call payment.CreditCall, b hongbao.Batch) (held []payment.AlreadyInLedger,
		before []payment.Pending, err error)
	// Record durably records grants that the remote has certainly credited, and deletes their pending rows. It returns
	// nil if all were recorded. Otherwise it returns one error for each grant, which is nil for a recorded grant. A
	// repeat changes nothing.
	Record(ctx context.Context, b hongbao.Batch) []error
	// Forget deletes the pending rows of a batch; if asked is set, only rows with this Asked. Call it only for credits
	// that are certainly not booked.
	Forget(ctx context.Context, batch int64, asked time.Time, grants []hongbao.Grant) error
	// Pending returns a page of the pending credits that no worker has started to request for the time idle.
	Pending(ctx context.Context, idle time.Duration, after hongbao.Grant, limit int) ([]payment.Pending, error)
}

// Campaigns returns what was planned for the packets of campaigns. It must be safe for concurrent use.
type Campaigns interface {
	// Amount returns the planned amount of a packet, and false if the plan has no such packet.
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
	// Currency returns the campaign's currency.
	Currency(ctx context.Context, campaign string) (string, error)
}
