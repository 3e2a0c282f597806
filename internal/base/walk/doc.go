// Package walk is a state machine for the path of one grab over the places of its campaign. It makes no calls itself.
// Its runner, the producer, calls the place that Ask returns and passes the answer to the walk. The tests of this
// package run many walks in a model with a scheduler.
//
// A place is one shard's share of one generation of packets. An empty place never gets packets again. A walk leaves a
// place only after the place has reported that it is empty. So no walk skips a place that still has packets or that did
// not answer. docs/design/many-shards.md explains why this keeps the limits by user over all shards, and when sold_out
// is certain.
package walk
