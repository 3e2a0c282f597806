// Package lock has named locks for what must have one owner in a deployment: a refund, the retirement of campaigns.
//
// It promises that at most one holder of a name believes that it holds it, as long as Redis forgets nothing and clocks
// run about equally fast. The owner is known by a token that nobody else has, so nobody releases what is another's; the
// lease is renewed while the work goes on; and whoever loses the lock is told, by the end of its context, before
// anybody else can have it.
//
// It does not promise that work has stopped by then: what must never happen twice needs a guard of its own, as the
// refund has one in the ledger. A lock only keeps many from trying at once.
//
// bsm/redislock and go-redsync/redsync have token, release and waiting, and leave renewal and the notice of a loss to
// their users (redislock #73, redsync #153); these two are what can be got wrong, so they are here.
package lock
