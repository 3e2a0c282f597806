// Package closing ends a campaign: it closes the campaign on its shards, refunds it in the ledger, and takes it out of
// Redis.
//
// It promises that a campaign is refunded once, with exactly what was funded and not granted, however often it is
// called and wherever a process dies:
//
//   - Close ends the grabs on each shard in one step, which writes one close entry with the final counts; a repeat reads
//     it.
//   - Refund waits until the ledger's consumer group has finished everything up to these entries, makes the ledger post
//     the refund against their counts, and notes it on the shards. Each step is safe to repeat: if a process dies between
//     two steps, the next call continues there.
//   - Retirer takes a refunded campaign out of Redis once its grace is over.
//
// It refuses to refund another amount than the caller named, or a campaign that is not closed. It also refuses while
// the ledger can't reach the counts of the close: people decide dead letters and quarantine first.
//
// A named lock keeps processes from trying concurrently. The single refund does not depend on it: the ledger's keys
// ensure it.
package closing
