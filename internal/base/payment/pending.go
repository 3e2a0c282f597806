package payment

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// Pending is a credit that may have been asked for at a remote balance system and is not recorded yet: it may be
// booked there.
type Pending struct {
	Grant hongbao.Grant
	// Owner asked for it last, in the call Batch.
	Owner string
	Batch int64
	// Age is the time since it may have been asked for. Idle is the time since its owner last began. Both are by the
	// ledger's clock.
	Age, Idle time.Duration
	// Taken says that the credit is now the call's, see Asking.BatchOf: it was the call's owner's, or its owner's time
	// was over. Otherwise another owner may still be asking.
	Taken bool
}

// Asking is a call that is about to ask a remote balance system for credits.
type Asking struct {
	// Owner is the worker, and Batch, above 0, this call of it; neither comes twice.
	Owner string
	Batch int64
	// OwnedFor is how long no other worker asks for what an owner has begun, or begun again.
	OwnedFor time.Duration
	// SinceGrant says that the credits may have been asked for since they were granted.
	SinceGrant bool
}

// BatchOf returns the batch under which the call has a credit that was noted before and is its own now. It is never
// Batch. So a row shows whether it was written when nothing had been asked for: what its owner begins again keeps its
// batch.
func (a *Asking) BatchOf(p *Pending) int64 {
	if p.Owner == a.Owner {
		return p.Batch
	}
	return -a.Batch
}
