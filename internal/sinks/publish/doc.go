// Package publish writes exactly one copy of each grant to a Kafka topic, with kafka-go's Client.
//
// It does not use kafka-go's Writer, which retries internally and may deliver a batch after it has reported a timeout.
// The broker detects copies: every batch has a producer id, an epoch and a base sequence, and a batch that is sent
// again is stored once. Handle takes these steps:
//
//  1. It takes the partition's session, or opens one. A session is a producer id with its epoch, its next sequence and
//     the last known end of the log. If the session has sent nothing for AnnouncedFor, it first sends a fence record with
//     its own numbers.
//  2. It claims the events. The claim contains everything that is needed to send the same batch again.
//  3. It sends the batch. After an inconclusive response, it sends exactly the same bytes again.
//  4. It completes the claim, which marks the events done.
//
// Two rules make this correct. First, a session is used again only if this worker itself completed or released the
// session's last claim. Otherwise another worker may have used the sequence. The broker would then drop a new batch
// with this sequence as a copy. Second, an open claim is finished, never skipped. As long as the broker certainly
// remembers the producer, the worker rebuilds the batch from the stream and sends it with the stored numbers. Later, it
// searches the partition for the event ids instead. If it does not find the events, it first sends a fence record with
// the next epoch, so that no late copy of the old batch can arrive. Then the events are released and claimed again.
//
// At the start, Check refuses a topic whose settings are unsafe, and names them: too few partitions, unclean leader
// elections, too few in-sync replicas, compaction, or a message size that is too small. If the topic was deleted and
// created again, or has lost its tail, its end is before an offset that the Publisher has seen. If the topic is longer
// again, it no longer has the Publisher's last record at its offset: Handle compares this before it opens another
// session, and after MaxClaimAge. The Publisher then returns a Broken error once. After that, it continues with the
// current log, and searches all of it for the batches of older claims.
//
// Log.Fence is used when a shard is restored. After it, older sessions can no longer append to the shard's partition.
// Fence finds these sessions by the records that they have appended; see AnnouncedFor and Config.Epoch.
//
// Log.Scan reads the topic, and package topic decodes its records. Subscribers, `hongbao tail` and the audit use both.
package publish
