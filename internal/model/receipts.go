package model

import "github.com/hongbao-project/hongbao"

// Receipts are the receipts of a user in a campaign.
type Receipts struct {
	Campaign string            `json:"campaign"`
	User     string            `json:"user"`
	Source   string            `json:"source"` // redis, or ledger
	Currency string            `json:"currency,omitempty"`
	Receipts []hongbao.Receipt `json:"receipts"`
	// Incomplete says that the receipts are from the ledger, which may not have all of them yet.
	Incomplete bool `json:"incomplete,omitempty"`
}
