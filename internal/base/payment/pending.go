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
	// Age is since when it may have been asked for, and Idle since when its owner has not begun again, by the
	// ledger's clock.
	Age, Idle time.Duration
	// Taken: it was the call's owner's, or his time was over; now it is the call's, see Asking.BatchOf. Else another
	// owner may still be asking.
	Taken bool
}

// Asking is a call that is about to ask a remote balance system for credits.
type Asking struct {
	// Owner is the worker, and Batch, above 0, this call of it; neither comes twice.
	Owner string
	Batch int64
	// OwnedFor is how long nobody else asks for what an owner has begun, or begun again.
	OwnedFor time.Duration
	// SinceGrant: the credits may have been asked for since they were granted.
	SinceGrant bool
}

// BatchOf is the batch under which the call has what was noted before and is its own now. It is never Batch, so a row
// tells whether it was written when nothing had been asked for: what its owner begins again keeps its batch.
func (a *Asking) BatchOf(p *Pending) int64 {
	if p.Owner == a.Owner {
		return p.Batch
	}
	return -a.Batch
}
