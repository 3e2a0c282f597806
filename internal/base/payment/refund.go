package payment

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Refund is the transfer of what nobody got, from a campaign's pool back to its sponsor. A campaign has one.
type Refund struct {
	Campaign, Currency, Sponsor string
	Amount                      hongbao.Amount
	Packets                     int64 // that nobody got
	// Closes are what it is based on: one of each of the campaign's places, in their order.
	Closes []Close
	// By and Why are set if Redis had lost something of the campaign, so that some closes are missing: who decided it,
	// and why.
	By, Why string
	Created time.Time
}

// Close names the close of a campaign on one shard.
type Close struct {
	Shard int
	// Seq is 0 if there was none: Redis had lost something of the campaign there.
	Seq int64
	// Epoch is that in which Redis had the close. A refund that is posted does not say.
	Epoch int64
}

// ErrSettling says that the ledger does not hold every grant up to a campaign's close yet: the refund has to wait. Its
// error is Transient, nothing was moved.
var ErrSettling = errors.New("settling")
