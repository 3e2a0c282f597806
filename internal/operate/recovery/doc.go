// Package recovery opens shards that are frozen: Redis was started anew, another server took over, or Redis went back
// in time.
//
// A shard opens by itself if nothing was lost: ledger, topic and everybody who has called the shard since the freeze
// know of no event that Redis has not. If something was lost it stays frozen, and a person decides (Accept). Either way
// the epoch rises, and the seqs go on behind everything that anybody knows, so no event number stands for two grants.
package recovery
