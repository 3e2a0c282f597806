// Package stream has the words of a shard's stream, which the stages share: its entries, runs of its events, and the
// claims on them.
package stream
