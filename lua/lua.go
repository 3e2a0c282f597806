// Package lua holds every script that Redis runs, one file each. Each has one method of internal/shards.Shard, which
// calls it.
//
// It promises that a script runs on one slot (all keys share their shard's hash tag), checks everything before its
// first write, gives the same answer when it runs twice, and changes nothing if a key holds another type. The head of
// each .lua file says what it does, KEYS, ARGV with units, reply, cost, first write and what a repeat does.
//
//	grab                          one campaign's grabs: receipts, limits, stock, one entry
//	found, create_campaign, load, state  a deployment's shards; a campaign's way from loading to open and paused
//	close, refunded, purge_campaign      a campaign's way from closed out of Redis
//	reclaim, renew, park, remove_idle_consumers  the consumer's leases, parking and dead workers, on the pending list
//	ack, dead_letter              the ends of a delivery
//	trim                          the stream's other end, and how far everybody is
//	claim, complete, release      a push in progress, with a fence
//	once                          "push once" by message id
//	codes                         coupons' codes beside a campaign
//	resolve_letter                the end of a dead letter
//	replay                        what a named replay covers
//	bits, fields, parking, stub   what others include
//	lock                          a named lock with one owner
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
