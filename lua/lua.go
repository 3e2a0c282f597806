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
//	found, open, freeze                   a deployment is initialized; a shard is frozen and opened again
//	create_campaign, load, codes, state   a campaign is created, loaded, opened, paused and resumed
//	announce                              a top-up's generation is announced, before load loads it
//	close, refunded, purge_campaign       a campaign is closed, marked as refunded, and removed from Redis
//	end_lost                              a campaign that Redis has lost is ended
//	create_group, remove_idle_consumers   a consumer group, and the consumers of workers that no longer exist
//	reclaim, renew, park                  leases and parking of pending entries
//	ack, dead_letter                      a delivery ends with success or with a dead letter
//	trim, raise_done_floor                finished entries and their done bits are deleted
//	sink, rate                            a sink is paused, resumed or limited in rate, for all workers
//	claim, complete, release              a push in progress, with a fence
//	once                                  the state of one message id of package dedup
//	resolve_letter, expire_letters        a dead letter is resolved, and its record deleted later
//	replay, replayed                      a named replay: what it covers, and where it continues
//	lock                                  a named lock with one owner
//	replicas                              the highest number of replicas that a shard's primary has had
//	touch                                 WAIT on the same connection then waits for all earlier writes
//	answers                               how servers answered a campaign's grabs
//	witness, testify, leave               the processes that report grants to users, and their evidence
//	mend, regrant, mark, revise           grants that Redis has lost are restored on a frozen shard
//	withhold, grant_withheld, release_withheld  packets that may have been reported to users who are unknown
//	guard                                 the check before the scripts of a shard
//	restore, kept                         decisions about campaigns and sinks: from the ledger, and already in it
//	bits, control, fields, left, marks, parking, seen, stub, withheld   functions that other scripts include
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
