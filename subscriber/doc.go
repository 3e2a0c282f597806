// Package subscriber is for teams that read the topic. It gives each grant its effect exactly once.
//
// A Subscriber is a member of a consumer group, with one worker per partition. A failing event only delays its own
// partition. A worker repeats these steps:
//
//  1. It fetches a batch. Linger limits how long it waits for further records.
//  2. It counts and skips foreign records: records of other producers, events of other deployments, and fence records.
//  3. It writes records that claim to be grants of this deployment but are malformed to the topic of dead letters.
//  4. It gives the events to the Sink, which drops events that it has seen, by (campaign, packet). If the Sink is down,
//     the worker waits. If a batch fails, the worker halves it until the failing event is alone; if that event keeps
//     failing, it becomes a dead letter.
//  5. It commits the offsets, always after the effects, and with them which event was the last one.
//
// If a process dies between steps 4 and 5, or a partition moves, the batch is read again, and the Sink drops the events
// that it has seen.
//
// There are two Sinks. The Sink of NewSQL runs the effect in the transaction that stores what it has seen, so each event
// has its effect exactly once, whatever dies. The Sink of NewFuncSink is for effects outside a database, and only remembers
// the events that this process handled. Its effect must detect other repeated events, with dedup's push-once or with
// its own unique key.
//
// A Sink remembers one bit for each packet. So it drops a copy of a grant whenever the copy arrives. It can't know
// whether a record of a packet that it has seen has another user, and drops this record, too
// (docs/subscribers.md#what-a-sink-remembers).
//
// Records may expire before they are read, or may be lost with a topic that was deleted and created again. Run does not
// skip them silently, but returns a Broken error that says what to do. A group without committed offsets is new, or
// was away for longer than the broker keeps offsets; Config.Since tells Run which.
package subscriber
