// Package walk has the way of one grab over the places of its campaign, as a state machine that asks nobody. Its
// runner asks the place that Ask names, and tells the walk the answer. The producer runs it, and so does the model of
// many walks under a scheduler, in this package's tests.
//
// A place is one shard's share of one generation of the packets. A place that was empty stays empty. A walk goes on
// only from a place that said so: nobody gets behind one that has packets, or that did not answer.
// docs/design/many-shards.md tells why this keeps the limits by user over all shards, and when sold_out is certain.
package walk
