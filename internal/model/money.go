package model

import (
	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// MoneyState is the state of a campaign's money.
type MoneyState string

// The states of a campaign's money. MoneyRefunded means that the sponsor got back the money that was not granted;
// nothing can be granted any more.
const (
	MoneyFunded   MoneyState = "funded"
	MoneyRefunded MoneyState = "refunded"
)

// Fund is the source of a client's credits in a currency: the contra account of `hongbao balance`.
type Fund struct {
	Client, Currency string
	// Funded is the sum of the fundings. Credited is the sum of the client's credits; Credits is their number.
	Funded, Credited hongbao.Amount
	Credits          int64
}

// Left returns the amount that can still be credited.
func (f *Fund) Left() hongbao.Amount { return f.Funded - f.Credited }

// Funding puts money into a client's fund.
type Funding struct {
	// Client and ID identify the funding. A second call with the same ID moves no money.
	Client, ID string
	Currency   string
	Amount     hongbao.Amount
	stream.Decision
}

// LostRefund is an operator's decision to refund a campaign of which Redis has lost data, so that at least one close is
// missing.
type LostRefund struct {
	Campaign string
	// Closes has the known close of each of the campaign's places, in order. Seq is 0 for a place whose close is missing.
	Closes []payment.Close
	// Amount must be exactly the money that the ledger has not granted.
	Amount hongbao.Amount
	stream.Decision
}
