package payment

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// Pending is a credit that a worker may have requested from the remote balance system, and whose result is not recorded
// yet. The remote may have booked it.
type Pending struct {
	Grant hongbao.Grant
	// Owner is the worker that requested the credit last, in its call Batch.
	Owner string
	Batch int64
	// Asked is when the owner last started to request it. Age is the time since the first possible request, and Idle the
	// time since Asked. All use the ledger's clock.
	Asked     time.Time
	Age, Idle time.Duration
	// Taken says that the calling worker now owns the credit: it was the owner before, or the previous owner's time
	// (CreditCall.OwnedFor) was over. If Taken is false, the owner may still be requesting the credit, or the row has
	// other facts than the grant.
	Taken bool
}

// AlreadyInLedger is a grant that the ledger already has, so no worker begins to request its credit.
type AlreadyInLedger struct {
	hongbao.Grant
	// Aside says that the grant is in quarantine, and that a person has decided about it or no credit was requested for
	// it. The caller must neither request the credit nor record it. If Aside is false, the remote has credited the
	// grant, or the call is a replay.
	Aside bool
}

// CreditCall identifies a call in which a worker is about to request credits from the remote balance system.
type CreditCall struct {
	// Owner identifies the worker's process, and Batch, above 0, identifies this call. Both are random, so neither is
	// used twice.
	Owner string
	Batch int64
	// OwnedFor is how long the owner of a pending credit has it exclusively, counted from the owner's last start.
	OwnedFor time.Duration
	// SinceGrant says that the call is a replay: the credits may already have been requested at any time since they were
	// granted, and no person has decided against them. So a grant without a decision is not aside.
	SinceGrant bool
}

// BatchOf returns the batch to store for a pending credit that the call has just taken. A worker that takes its own
// credit again keeps the old batch. A credit from another owner gets the negative number of this call. So only a row
// that this call created has exactly a.Batch: nothing was requested for such a row before.
func (a *CreditCall) BatchOf(p *Pending) int64 {
	if p.Owner == a.Owner {
		return p.Batch
	}
	return -a.Batch
}
