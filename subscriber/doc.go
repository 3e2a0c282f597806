// Package subscriber is for teams who read the topic: each grant has its effect once.
//
// A Subscriber reads as a member of a consumer group, with one worker a partition, batch by batch: an event that fails
// holds up its own partition only. In order, a worker
//
//  1. fetches a batch, and stops waiting for more when Linger is over;
//  2. passes over and counts what is foreign: other producers' records, other deployments' events, fence records;
//  3. writes a record that claims to be ours and can't be read to the dead-letter topic;
//  4. hands the events to the Sink, which leaves out those that it has seen, by (shard, seq), and repeats the rest until
//     it is done: a Sink that is down is waited for, a batch that fails is halved, and an event that fails alone becomes
//     a dead letter;
//  5. commits the offsets, after the effect and never before.
//
// Whoever dies between 4 and 5 reads the batch again, and so does another member after a rebalance; the Sink drops what
// it has seen. There are two Sinks. That of NewSQL runs the effect in the transaction that stores the position:
// exactly once, whatever dies. That of NewFuncSink is for effects elsewhere: it remembers what this process did, and the
// effect itself must recognise what another process did, with dedup's push-once or with a unique key of its own.
//
// The position of a sink knows exactly which events of a shard were seen, in any order: parked grants come late, and a
// plain high-water mark would drop them. It holds up to 4,096 runs of events without a hole. Beyond that it forgets
// below the oldest hole; an event from there has no second effect and is reported, not dropped: it goes to the
// dead-letter topic as "too_old".
//
// What it refuses: to skip what expired before it was read, or what a topic made anew has lost. Run returns an error
// of class Broken that says what to do.
package subscriber
