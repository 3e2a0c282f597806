// Package closing ends a campaign: closed on its shard, refunded in the ledger, out of Redis.
//
// It promises that a campaign is refunded once, with exactly what was funded and not granted, however often it is
// called and wherever a process dies:
//
//   - Close ends the grabs in one step that writes one close entry with the final counts; a repeat reads it.
//   - Refund waits until the ledger's consumer group has finished everything up to that entry, makes the ledger post
//     the refund against the entry's counts, and notes it on the shard. Each step is safe to repeat: if a process dies
//     between two, the next call continues there.
//   - Retirer takes a refunded campaign out of Redis once its grace is over.
//
// It refuses to refund another amount than the caller named, a campaign that is not closed, and a ledger that can't
// reach the counts of the close: dead letters and quarantine are decided first.
//
// A named lock keeps processes from trying concurrently. The single refund does not depend on it: the ledger's keys
// ensure it.
package closing
