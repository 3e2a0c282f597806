package hongbao

import "errors"

// Claim is the right to push events of one shard to a sink. It is written before the push and gone after it, so that
// whoever takes over can tell what may have been sent. See package dedup for its life.
type Claim struct {
	// ID names the claim within its shard and sink; its owner makes it up, never twice.
	ID string
	// Fence rises with every claim and takeover of the shard and sink. A claim whose fence was raised is lost.
	Fence int64
	// Events are what it covers, in the order of the push.
	Events []SeqRange
	// Payload is what the sink needs to finish the push: opaque to dedup.
	Payload string
}

// ErrFenced says that a claim was taken over by another worker, or is gone: whoever holds it now finishes it.
var ErrFenced = errors.New("the claim was taken over by another worker")
