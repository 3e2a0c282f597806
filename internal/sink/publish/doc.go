// Package publish puts grants into a Kafka topic, exactly one copy of each, with kafka-go's Client.
//
// It never uses kafka-go's Writer, which retries inside itself and may deliver after it reported a timeout. The broker
// detects copies: every batch has a producer id, an epoch and a base sequence, and a batch that is sent again is stored
// once. In order, Handle
//
//  1. takes the partition's session (producer id, epoch, next sequence, last known end of the log), or opens one. If
//     the session has sent nothing for ShownFor, it first sends a fence record under its own numbers to the partition;
//  2. claims the events and stores in the claim everything that is needed to send the same batch again;
//  3. sends the batch, and exactly the same bytes again after any response that does not decide;
//  4. completes the claim, which marks the events done.
//
// Two rules keep this right. First, a session continues only if its last claim ended with this worker's own complete or
// release. In every other case another worker may have used up the sequence, and the broker would drop a new batch
// under it as a copy. Second, an open claim is finished, never skipped. Its batch is rebuilt from the stream and sent
// under the stored numbers while the broker certainly remembers the producer; otherwise the partition is read back for
// the event ids. Before events that were not found are released and claimed again, a fence record under the next epoch
// makes sure that no late copy of the old batch can arrive any more.
//
// Check refuses, by name and at start: a topic with other partitions than configured, with unclean elections, with too
// few in-sync replicas, with compaction, with too small messages. If the topic's end is before an offset that it has
// seen (the topic was deleted and created again, or its tail was lost) it says so with a Broken error, once. Then it
// continues with the current log, and searches all of it for the batches that were stored before.
//
// Log.Fence is for a shard that is restored: no session from before can append to its partition any more. It finds the
// sessions by the records that they have appended; see ShownFor and Config.Epoch.
//
// Log.Scan reads the topic; package topic decodes a record. Subscribers, tail and audit read with them.
package publish
