// Package closing brings a campaign to its end: closed on its shard, refunded in the ledger, out of Redis.
//
// It promises that a campaign is refunded once, with exactly what was funded and not granted, whoever asks how often
// and dies where:
//
//   - Close ends the grabs in one step that writes one close entry with the final counts; a repeat reads it.
//   - Refund waits until the ledger's consumer group has finished everything up to that entry, has the ledger post the
//     refund against the entry's counts, and notes it on the shard. Each step is safe to repeat: a process that dies
//     between two is followed by the next call, which goes on where it was.
//   - Retirer takes a refunded campaign out of Redis once its grace is over.
//
// It refuses to refund another amount than the caller named, a campaign that is not closed, and a ledger that can't
// come to what the close tells: dead letters and quarantine are decided first.
//
// A named lock keeps many from trying at once. That there is one refund does not hang on it: the ledger's keys say so.
package closing
