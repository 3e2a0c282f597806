// Package recovery opens shards that are frozen: Redis was restarted, another server took over, or Redis went back in
// time.
//
// A shard opens automatically if nothing was lost: the ledger, the topic and all processes that answered users know of no
// event that Redis lacks. What was lost is restored first, if they know it; packets that a silent process may have
// reported to users are withheld. If the evidence contradicts itself the shard stays frozen, and a person decides (Accept).
// In each case the epoch rises, and the seqs continue after all known ones, so no event number names two grants.
package recovery
