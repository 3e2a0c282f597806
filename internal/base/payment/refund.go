package payment

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Refund is the transfer of the money that was not granted, from a campaign's pool back to its sponsor. A campaign has
// one.
type Refund struct {
	Campaign, Currency, Sponsor string
	Amount                      hongbao.Amount
	Packets                     int64 // that were not granted
	// Closes are its basis: one for each of the campaign's places, in their order.
	Closes []Close
	// By and Why are set if Redis had lost data of the campaign, so that some closes are missing: the person who
	// decided it, and the reason.
	By, Why string
	Created time.Time
}

// Close names the close of a campaign on one shard.
type Close struct {
	Shard int
	// Seq is 0 if there was none: Redis had lost data of the campaign there.
	Seq int64
	// Epoch is that in which Redis had the close. A posted refund does not have it.
	Epoch int64
}

// ErrSettling says that the ledger does not have every grant up to a campaign's close yet: the refund must wait. Its
// error is Transient; nothing was moved.
var ErrSettling = errors.New("settling")
