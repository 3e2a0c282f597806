// Package lua has the scripts that run in Redis, one file each. Each script is called by one method in
// internal/store.
//
// Every script has four properties. All its keys are in one slot, because they have their shard's hash tag. It checks
// everything before its first write. It is safe to run twice. It changes nothing if a key has the wrong type. The
// head of each .lua file describes the script: KEYS, ARGV with units, reply, cost, first write and the effect of a
// repeat.
//
//	grab                                  one campaign's grabs: receipts, limits, stock, one entry
//	receipts                              the receipts of users in a campaign on one shard
//	found, open, freeze                   a deployment's shards; how a shard is frozen and opened again
//	create_campaign, load, codes, state   a campaign's way into Redis, to open and paused
//	announce                              a top-up's generation is announced, then load loads it
//	close, refunded, purge_campaign       a campaign's way from closed out of Redis
//	end_lost                              the end of a campaign that Redis has lost
//	create_group, remove_idle_consumers   a consumer group, and the consumers of workers that no longer exist
//	reclaim, renew, park                  the consumer's leases and parking, on the pending list
//	ack, dead_letter                      the ends of a delivery
//	trim, raise_done_floor                the stream's other end, with the done bits behind it
//	sink, rate                            a sink is paused or resumed for all workers; its rate over all workers
//	claim, complete, release              a push in progress, with a fence
//	once                                  "push once" by message id
//	resolve_letter, expire_letters        the end of a dead letter, and of its record
//	replay, replayed                      what a named replay covers, and where it continues
//	lock                                  a named lock with one owner
//	replicas                              the most replicas that a shard's primary has had
//	witness, testify, leave               the processes that watch a shard, and what they reported to users of it
//	mend, regrant, mark, revise           a frozen shard gets back what Redis has lost
//	withhold, grant_withheld, release_withheld  packets that may be granted to users whom no one can name
//	unskip                                repairs what openings by earlier builds have skipped
//	guard                                 the check in front of the scripts of a shard
//	restore, kept                         the decisions about campaigns and sinks that the ledger has too
//	bits, control, fields, left, parking, stub, withheld   functions that other scripts include
package lua

import "embed"

//go:embed *.lua
var files embed.FS

// Source returns the text of a script. name is the file's name without .lua. Source panics if there is no such file.
func Source(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // all names are constants in this module
	}
	return string(text)
}
