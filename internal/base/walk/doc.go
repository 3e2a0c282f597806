// Package walk has the path of one grab over the places of its campaign, as a state machine that makes no calls. Its
// runner asks the place that Ask names, and passes the answer to the walk. The producer runs it. This package's tests
// also run it, in a model of many walks under a scheduler.
//
// A place is one shard's share of one generation of the packets. A place that was empty stays empty. A walk continues
// only from a place that reported that it is empty: no walk passes a place that has packets, or that did not answer.
// docs/design/many-shards.md explains why this keeps the limits by user over all shards, and when sold_out is certain.
package walk
