// Package recovery opens frozen shards. A shard freezes if Redis was restarted, if another server took over, or if
// Redis went back in time.
//
// A shard opens automatically if nothing was lost: the ledger, the topic and all processes that answered users know of
// no event that Redis lacks. Events that Redis lost and these sources know are restored first. Packets that a silent
// process may have reported to users are withheld. If the evidence contradicts itself, the shard stays frozen, and a
// person decides (Accept). Each opening raises the epoch and continues after all known seqs, so that no seq names two
// grants.
package recovery
