// Package stream has the types of a shard's stream, which the stages share: its entries, runs of its events, the claims
// on them, and people's decisions.
package stream
