// Package publish puts grants into a Kafka topic, exactly one copy of each, with kafka-go's Client.
//
// It never uses kafka-go's Writer, which retries inside itself and may deliver after it reported a timeout. The broker
// is the judge of what is a copy: every batch carries a producer id, an epoch and a base sequence, and a batch that is
// sent again is stored once. In order, Handle
//
//  1. takes the partition's session (producer id, epoch, next sequence, last known end of the log), or opens one, and
//     lets it show itself in the partition by a fence record under its own numbers if it has sent nothing for ShownFor;
//  2. claims the events and stores in the claim all that it takes to send the same batch again;
//  3. sends the batch, and the very same bytes again after any answer that does not decide;
//  4. completes the claim, which marks the events done.
//
// Two rules keep this right. A session goes on only if its last claim ended with this worker's own complete or release:
// in every other case somebody else may have used up the sequence, and the broker would drop a new batch under it as a
// copy. And a claim that is found open is finished, never skipped: its batch is rebuilt from the stream and sent under
// the stored numbers while the broker surely remembers the producer; else the partition is read back for the event ids.
// Before events that were not found are let go to be claimed anew, a fence record under the next epoch makes sure that
// no late copy of the old batch can arrive any more.
//
// It refuses, by name and at start (Check): a topic with other partitions than configured, with unclean elections, with
// too few in-sync replicas, with compaction, with too small messages. When the topic's end lies before an offset that
// it has seen (deleted and made again, or its tail was lost) it says so with a Broken error, once; then it goes on with
// the log that is there, and looks in all of it for the batches that were stored before.
//
// Log.Fence is for a shard that is restored: no session from before can append to its partition any more. It finds the
// sessions by what they have appended; see ShownFor and Config.Epoch.
//
// Log.Scan reads the topic; package topic decodes a record: what subscribers, tail and audit read.
package publish
