// Package closing ends a campaign: it closes the campaign on its shards, refunds it in the ledger, and takes it out of
// Redis.
//
// A campaign is refunded exactly once, with the amount that was funded and not granted. This holds however often the
// functions are called, and wherever a process dies:
//
//   - Close ends the grabs on each shard in one step, which writes one close entry with the final counts; a repeat reads
//     it.
//   - Refund waits until the ledger's consumer group has finished everything up to these entries, makes the ledger post
//     the refund against their counts, and notes it on the shards. Each step is safe to repeat: if a process dies between
//     two steps, the next call continues there.
//   - Retirer takes a refunded campaign out of Redis once its grace is over.
//
// Refund fails if the campaign is not closed, or if the caller named another amount. It also fails while grants up to
// the close are dead letters or in quarantine: a person has to decide about them first.
//
// A named lock keeps processes from working concurrently. Even without the lock there is one refund, because the
// ledger's primary keys do not allow a second one.
package closing
