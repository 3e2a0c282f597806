// Package frontend is an example of an effect without a database. Several subscribers, in several processes or data
// centres, report each grant to one front end, which shows it once. Each subscriber has its own consumer group, so
// that any of them may be down.
//
// The front end does not remember messages, and a message on a screen can't be taken back. So a subscriber must know
// that no other subscriber has sent the message. dedup's push-once decides that in Redis, by campaign and packet.
// NotifyOnce describes each result of push-once. Hub is the front end, which streams to browsers by server-sent events.
package frontend
