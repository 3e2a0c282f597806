// Package claims keeps the pushes in progress of a sink that can't tell a repeat by itself. Each event has one done
// bit. A claim is written before the push and is gone after it:
//
//	new --claim--> claimed --complete--> done (bits set, claim gone, one script)
//	                  |--release (certainly not sent)--> new
//	                  '--its owner dies, or can't tell--> open: whoever claims one of its events next takes it over
//
// An open claim never becomes new by a timer. Whoever takes it over gets its payload and finishes it in the sink's own
// way: the publisher sends the same batch again and the broker drops the copy. Complete and Release compare the
// claim's fence, as a lock's release compares its token: who was overtaken learns it by stream.ErrFenced.
//
// What the package refuses: to forget. A lost claim stays until somebody resolves it.
package claims
