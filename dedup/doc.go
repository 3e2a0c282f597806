// Package dedup makes sure that no push happens twice.
//
// For events, which have a sequence, there is one done bit each, and claims for sinks that can't tell a repeat by
// themselves. A claim is written before the push and is gone after it:
//
//	new --claim--> claimed --complete--> done (bits set, claim gone, one script)
//	                  |--release (certainly not sent)--> new
//	                  '--its owner dies, or can't tell--> open: whoever claims one of its events next takes it over
//
// An open claim never becomes new by a timer. Whoever takes it over gets its payload and finishes it in the sink's own
// way: the publisher sends the same batch again and the broker drops the copy. Complete and Release compare the
// claim's fence, as a lock's release compares its token: who was overtaken learns it by hongbao.ErrFenced.
//
// For messages without a sequence there is Once: a claim by message id, kept for a retention.
//
// What the package refuses: to forget. A lost claim stays until somebody resolves it.
package dedup
