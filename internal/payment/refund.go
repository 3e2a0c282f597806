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
	// Shard and Seq name the close that it is based on. Seq is 0 if Redis had lost the campaign, so that there was
	// none: then By and Why say who decided it.
	Shard   int
	Seq     int64
	By, Why string
	Created time.Time
}

// ErrSettling says that the ledger does not hold every grant up to a campaign's close yet: the refund has to wait. Its
// error is Transient, nothing was moved.
var ErrSettling = errors.New("settling")
