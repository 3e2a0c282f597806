package store

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/hongbao-project/hongbao"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// MaxShards is the most shards that a deployment can have.
const MaxShards = 1024

// ChunkEvents is the number of done bits in one bitmap key (8 KiB).
const ChunkEvents = 1 << 16

// keysOf returns the keys of each shard of a deployment. The hash tags depend on prefix and number of shards, so
// neither may change while the deployment exists.
func keysOf(space hongbao.Space) ([]Keys, error) {
	if p := space.Prefix; p == "" || len(p) > 32 || strings.ContainsAny(p, "{}: \t\r\n") {
		return nil, fmt.Errorf("key prefix %.40q: want 1 to 32 bytes without {, }, : or white space", p)
	}
	if space.Shards < 1 || space.Shards > MaxShards {
		return nil, fmt.Errorf("%d shards: want 1 to %d", space.Shards, MaxShards)
	}
	keys := make([]Keys, space.Shards)
	for i, tag := range tagsOf(space.Shards) {
		keys[i] = Keys{shard: i, tag: space.Prefix + ":{" + tag + "}:"}
	}
	return keys, nil
}

// CheckSpace returns an error if the key prefix or the number of shards is invalid.
func CheckSpace(space hongbao.Space) error {
	_, err := keysOf(space)
	return err
}

// tagsKnown caches the tags by the number of shards, because computing a thousand tags takes 0.1 s.
var tagsKnown sync.Map

func tagsOf(shards int) []string {
	if known, ok := tagsKnown.Load(shards); ok {
		if tags, ok := known.([]string); ok {
			return tags
		}
	}
	tags := make([]string, shards)
	for i := range tags {
		tags[i] = tag(i, shards)
	}
	tagsKnown.Store(shards, tags)
	return tags
}

// tag returns the hash tag of shard i of n: the first of "i.0", "i.1", ... whose slot is in the shard's range. The
// ranges are n equal parts of all slots.
func tag(i, n int) string {
	low, high := i*slots/n, (i+1)*slots/n
	for k := 0; ; k++ {
		t := strconv.Itoa(i) + "." + strconv.Itoa(k)
		if at := int(crc16(t) % slots); at >= low && at < high {
			return t
		}
	}
}

// slot returns the slot of a key, as Redis computes it. Redis hashes only the text between the first "{" and the next
// "}". If there is no such text, it hashes the whole key.
func slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if t, _, ok := strings.Cut(after, "}"); ok && t != "" {
			key = t
		}
	}
	return int(crc16(key) % slots)
}

// crc16 returns the CRC-16/XMODEM, which Redis Cluster uses (polynomial 0x1021, initial value 0).
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// Keys has the names of the keys of one shard. All have its hash tag, so every script runs on one slot.
type Keys struct {
	shard int
	tag   string
}

// Index is the shard's number in its deployment.
func (k Keys) Index() int { return k.shard }

// Meta is a hash: deployment id, founding, shards, epoch, seq, finished, done_floor and the state of the opening.
func (k Keys) Meta() string { return k.tag + "meta" }

// Events is the shard's stream of entries, in the order of the decisions.
func (k Keys) Events() string { return k.tag + "events" }

// Campaign is a hash: state, window, limits and counts of a campaign on one place. Its field revision shows a caller
// whether its terms are up to date. It is the plan's hash, then a dot and the newest announced generation, if there
// was a top-up. dealt is the newest complete generation.
func (k Keys) Campaign(id string) string { return k.tag + "c:" + id }

// Stock is a list: the campaign's packets that no user has, "number amount", in the order in which the plan drew
// them.
func (k Keys) Stock(id string) string { return k.tag + "c:" + id + ":stock" }

// StockOf is the stock of a generation. For generation 0 or 1 it is Stock.
func (k Keys) StockOf(id string, generation int64) string {
	if generation <= 1 {
		return k.Stock(id)
	}
	return k.Stock(id) + ":" + strconv.FormatInt(generation, 10)
}

// LoadedTotals is a list that goes with the stock of a generation. Each loaded chunk adds an element "packets amount":
// the number and the sum of all packets that were loaded at the place up to then.
func (k Keys) LoadedTotals(id string, generation int64) string {
	return strings.Replace(k.StockOf(id, generation), ":stock", ":sums", 1)
}

// Stocks returns the keys of the first generations: stock and sums of generation 1, stock and sums of generation 2,
// and so on.
func (k Keys) Stocks(id string, generations int64) (keys []string) {
	for g := int64(1); g <= generations; g++ {
		keys = append(keys, k.StockOf(id, g), k.LoadedTotals(id, g))
	}
	return keys
}

// Withheld is a list: packets that a restore took out of the stock, because a process may have reported them to users
// who are unknown. The field `withheld` of the campaign's hash counts them.
func (k Keys) Withheld(id string) string { return k.tag + "c:" + id + ":withheld" }

// Receipts is a hash: from user to the user's receipts in the campaign.
func (k Keys) Receipts(id string) string { return k.tag + "c:" + id + ":receipts" }

// Counters is a hash: the counts of limits that are not per user, for the whole campaign (name "c"), or for one day
// ("d20778") or hour ("h498672"). The counters of a period expire one period after its end.
func (k Keys) Counters(id, name string) string { return k.tag + "c:" + id + ":counters:" + name }

// Codes is a hash from packet number to code. Only campaigns whose packets have codes have it.
func (k Keys) Codes(id string) string { return k.tag + "c:" + id + ":codes" }

// Filter is a hash at a campaign's home. It has a filter of all winners, once no packets are left. Field head
// describes the filter, fields 0, 1, ... are its parts, and field by is the token of its builder.
func (k Keys) Filter(id string) string { return k.tag + "c:" + id + ":filter" }

// Answers is a hash at a campaign's home: for each server, how often it has given each answer to the campaign's grabs.
func (k Keys) Answers(id string) string { return k.tag + "c:" + id + ":answers" }

// Done is a bitmap: one bit per seq that the sink has finished; chunk is seq / ChunkEvents.
func (k Keys) Done(sink string, chunk int64) string {
	return k.tag + "done:" + sink + ":" + strconv.FormatInt(chunk, 10)
}

// Claims is a hash: the sink's pushes in progress.
func (k Keys) Claims(sink string) string { return k.tag + "claims:" + sink }

// Sink is a hash: the decisions of operators about the sink, such as pause and rate.
func (k Keys) Sink(sink string) string { return k.tag + "sink:" + sink }

// Down is a string: the newest report of a worker that can't deliver to the sink, see DownReport. It expires after 15 s.
// Only the first shard has it.
func (k Keys) Down(sink string) string { return k.tag + "down:" + sink }

// Ended is a string: the last worker of the sink that ended in order, see WorkerEnd. It expires after a week. Only the
// first shard has it.
func (k Keys) Ended(sink string) string { return k.tag + "ended:" + sink }

// SinkCampaigns is a hash: the campaigns that are paused for this sink only.
func (k Keys) SinkCampaigns(sink string) string { return k.tag + "sink:" + sink + ":campaigns" }

// Witnesses is a hash from process to two values: the time when it last checked the shard, and the epoch of the
// restore attempt to which it has sent all its evidence.
func (k Keys) Witnesses() string { return k.tag + "witnesses" }

// Evidence is a list: the grants that processes have sent to an attempt to restore the shard.
func (k Keys) Evidence() string { return k.tag + "evidence" }

// Controls is a hash: the decisions about campaigns and sinks that the ledger does not have yet.
func (k Keys) Controls() string { return k.tag + "controls" }

// Rate is a string: the earliest time of the next delivery, for a sink with a rate limit. Only the sink's Home has
// it. While that shard is unreachable, each shard limits the rate on its own.
func (k Keys) Rate(sink string) string { return k.tag + "rate:" + sink }

// Dead is a stream: the sink's dead letters.
func (k Keys) Dead(sink string) string { return k.tag + "dead:" + sink }

// ResolvedLetters is a stream: copies of the dead letters that an operator requeued or dropped, with the operator and
// the reason.
func (k Keys) ResolvedLetters(sink string) string { return k.tag + "dead:" + sink + ":log" }

// Replay is a hash: what a named replay covers on the shard.
func (k Keys) Replay(name string) string { return k.tag + "replay:" + name }

// Once is a string: the state of one message id; see package dedup.
func (k Keys) Once(name, id string) string { return k.tag + "once:" + name + ":" + id }

// Refunded is a sorted set: the refunded campaigns that wait for the end of their grace, by the time of the refund.
func (k Keys) Refunded() string { return k.tag + "refunded" }

// Audit is a hash: the start time of the last whole audit, the number of differences that it found, how many of them
// are dead letters, and the start time of the audit that counted the dead letters; and who began the last audit on a
// server, when, and by which request. Only the first shard has it.
func (k Keys) Audit() string { return k.tag + "audit" }

// Lead is a string: the worker that has the lead, i.e. that does some work for all workers, such as reclaiming.
func (k Keys) Lead(work string) string { return k.tag + "lead:" + work }

// Lock is a string: the token of the lock's owner.
func (k Keys) Lock(name string) string { return k.tag + "lock:" + name }
