package payment

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Refund is the transfer of a campaign's ungranted money from its pool back to its sponsor. Each campaign has one
// refund.
type Refund struct {
	Campaign, Currency, Sponsor string
	Amount                      hongbao.Amount
	Packets                     int64 // number of packets that were not granted
	// Closes has one close for each place of the campaign, in the order of the places. The amount is computed from
	// them.
	Closes []Close
	// By and Why name the person who decided and the reason. They are set only if Redis lost data of the campaign, so
	// that some closes are missing.
	By, Why string
	Created time.Time
}

// Close identifies the close entry of a campaign on one shard.
type Close struct {
	Shard int
	// Seq is 0 if the close is missing because Redis lost data of the campaign.
	Seq int64
	// Epoch is the shard's epoch when the close was read from Redis. It is 0 in a posted refund.
	Epoch int64
}

// ErrSettling says that the refund must wait: the ledger does not have every grant up to the campaign's close yet. An
// error that wraps it is Transient, and nothing was moved.
var ErrSettling = errors.New("settling")
