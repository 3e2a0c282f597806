// Package stream defines types that several stages share: entries of a shard's stream, ranges of events, claims on
// events, and operators' decisions.
package stream
