package model

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// QuarantineReason says why a grant is in quarantine.
type QuarantineReason string

// Quarantined is a grant that contradicts the ledger, the plan or the funding. It was not paid.
type Quarantined struct {
	ID     int64
	Reason QuarantineReason
	// Grant has no currency if the ledger does not have the campaign.
	Grant hongbao.Grant
	// Has is the ledger's grant of the packet when this grant arrived; nil if there was none.
	Has     *hongbao.Grant
	Created time.Time
	// Resolved is zero until an operator has decided.
	Resolved   time.Time
	ResolvedBy string
	Resolution string
}
