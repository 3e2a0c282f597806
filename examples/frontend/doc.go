// Package frontend is an example of an effect without a database: several subscribers, in several processes or data
// centres, each with a consumer group of its own so that any of them may be down, tell one front end of each grant, and
// the front end shows it once.
//
// The front end has no memory of what it was told, and a message on a screen can't be taken back. So who tells it must
// know that nobody else has: dedup's push-once decides that in Redis, by the event's id. See Tell for what each of its
// answers means here, and Hub for the front end, which streams to browsers by server-sent events.
package frontend
