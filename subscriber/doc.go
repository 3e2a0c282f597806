// Package subscriber is for teams that read the topic: each grant has its effect once.
//
// A Subscriber reads as a member of a consumer group, with one worker a partition, batch by batch. A failing event
// delays its own partition only. In order, a worker
//
//  1. fetches a batch, and stops waiting for more when Linger is over;
//  2. skips and counts foreign records: other producers' records, other deployments' events, fence records;
//  3. writes a record that claims to be ours and can't be read to the dead-letter topic;
//  4. hands the events to the Sink, which drops those that it has seen, by (shard, seq). The worker repeats the rest
//     until it is done: it waits for a Sink that is down, halves a batch that fails, and makes an event that fails
//     alone a dead letter;
//  5. commits the offsets, after the effect and never before.
//
// A process that dies between 4 and 5 reads the batch again, and so does another member after a rebalance; the Sink
// drops the events that it has seen. There are two Sinks. The Sink of NewSQL runs the effect in the transaction that
// stores the position: exactly once, whatever dies. The Sink of NewFuncSink is for effects elsewhere and remembers
// only the events of this process. Its effect itself must recognise events of other processes, with dedup's push-once
// or with a unique key of its own.
//
// The position of a sink knows exactly which events of a shard were seen, in any order: parked grants come late, and
// a plain high-water mark would drop them. It stores up to 4,096 runs of events without a hole. Beyond that it
// forgets the events below the oldest hole. An event from there has no second effect and is reported, not dropped: it
// goes to the dead-letter topic as "too_old".
//
// The package refuses to skip records that expired before they were read, or that were lost with a topic that was
// deleted and created again. Run returns an error of class Broken that says what to do.
package subscriber
