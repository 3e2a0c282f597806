// Package recovery opens shards that are frozen: Redis was restarted, another server took over, or Redis went back in
// time.
//
// A shard opens automatically if nothing was lost: ledger, topic and all processes that have called the shard since
// the freeze know of no event that Redis lacks. If something was lost the shard stays frozen, and a person decides
// (Accept). Either way the epoch rises, and the seqs continue after all known ones, so no event number names two
// grants.
package recovery
