// Package lua holds every script that Redis runs, one file each. Each has one method of internal/store.Shard, which
// calls it.
//
// It promises that a script runs on one slot (all keys share their shard's hash tag), checks everything before its
// first write, gives the same answer when it runs twice, and changes nothing if a key holds another type. The head of
// each .lua file says what it does, KEYS, ARGV with units, reply, cost, first write and what a repeat does.
//
//	grab                                  one campaign's grabs: receipts, limits, stock, one entry
//	receipts                              what users hold of a campaign on one shard
//	found, open, freeze                   a deployment's shards; how a shard is frozen and opened anew
//	create_campaign, load, codes, state   a campaign's way into Redis, to open and paused
//	announce                              a top-up's generation comes, then load loads it
//	close, refunded, purge_campaign       a campaign's way from closed out of Redis
//	end_lost                              the end of a campaign that Redis has lost
//	create_group, remove_idle_consumers   a consumer group, and the consumers of workers that are no more
//	reclaim, renew, park                  the consumer's leases and parking, on the pending list
//	ack, dead_letter                      the ends of a delivery
//	trim, raise_done_floor                the stream's other end, with the done bits behind it
//	sink, rate                            a sink is paused for all workers, or goes on; its rate over all workers
//	claim, complete, release              a push in progress, with a fence
//	once                                  "push once" by message id
//	resolve_letter, expire_letters        the end of a dead letter, and of its record
//	replay, replayed                      what a named replay covers, and where it goes on
//	lock                                  a named lock with one owner
//	replicas                              the most replicas that a shard's primary has had
//	witness, testify, leave               who watches a shard, and what they have told users of it
//	mend, regrant, mark, revise           a frozen shard gets back what Redis has lost
//	withhold, grant_withheld, release_withheld  packets that nobody can name whether they are granted
//	unskip                                repairs what openings by earlier builds have skipped
//	guard                                 what stands in front of the scripts of a shard
//	restore, kept                         the decisions about campaigns and sinks that the ledger has too
//	bits, control, fields, left, parking, stub, withheld   what others include
package lua

import "embed"

//go:embed *.lua
var files embed.FS

// Source gives the text of a script by its name, "grab" for grab.lua. It panics if there is none of that name.
func Source(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the names are constants of this module
	}
	return string(text)
}
