package stream

import "errors"

// Claim is the right to push events of one shard to a sink. It is written before the push and removed after it, so that
// a worker that takes it over knows what may have been sent. See store.Claims for its life.
type Claim struct {
	// ID identifies the claim within its shard and sink; its owner creates it, never twice.
	ID string
	// Fence rises with every claim and every takeover of the shard and sink. A claim whose fence was raised is lost.
	Fence int64
	// Events are the events that it covers, in the order of the push.
	Events []SeqRange
	// Payload is the data that the sink needs to finish the push: opaque to Redis.
	Payload string
}

// ClaimAnswer is the result of an attempt to claim. The claim was granted if and only if Done, Open and Held are empty.
// Otherwise nothing was claimed, and they list the obstacles.
type ClaimAnswer struct {
	// Fence of the granted claim.
	Fence int64
	// Done are the wanted events that were pushed before.
	Done []SeqRange
	// Open are the unfinished claims that cover some of the wanted events, with payload and all their events. They have
	// been taken over: their fences were raised, and the caller must finish them.
	Open []Claim
	// Held is the number of claims on wanted events that a live owner has: try again later.
	Held int
}

// Granted reports whether the claim was granted.
func (a *ClaimAnswer) Granted() bool { return len(a.Done) == 0 && len(a.Open) == 0 && a.Held == 0 }

// ErrFenced says that a claim was taken over by another worker, or is gone: its present owner finishes it.
var ErrFenced = errors.New("the claim was taken over by another worker")

// SeqRange is a run of events of one shard, both ends included.
type SeqRange struct {
	First int64 `doc:"The first seq."`
	Last  int64 `doc:"The last seq."`
}

// Has reports whether a seq is in the run.
func (r SeqRange) Has(seq int64) bool { return r.First <= seq && seq <= r.Last }

// Len returns the number of events in the run.
func (r SeqRange) Len() int64 { return r.Last - r.First + 1 }
