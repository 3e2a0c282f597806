// Package stream has the words of a shard's stream, which the stages share: its entries, runs of its events, the
// claims on them, and what people decide.
package stream
