package restore_test

import (
	"maps"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// key identifies a packet.
type key struct {
	campaign string
	packet   int64
}

func keyOf(g *hongbao.Grant) key { return key{g.Campaign, g.Packet} }

// identity identifies a grant independently of its seq.
type identity struct {
	key
	user, request string
}

func idOf(g *hongbao.Grant) identity { return identity{keyOf(g), g.User, g.RequestID} }

// row is the ledger's row of an attempt: the fence, and then the plan, which is recorded before it is carried out.
type row struct {
	epoch, floor   int64
	token, attempt string
	turn           int
	tops           map[int64]int64 // highest seq that any process saw, by epoch
	last           int64           // last seq that the opening skips
	restored       map[identity]bool
	opening        bool             // whether the shard may have opened
	through        map[string]int64 // last packet that was dealt or withheld, by campaign
}

// ledger is the SQL ledger. Each method is a transaction.
type ledger struct {
	downUntil int64
	grants    map[key]hongbao.Grant
	kept      map[identity]hongbao.Grant // quarantine
	rows      [][]row                    // by shard
	locks     []map[*agent]int64         // share locks, by shard, with the time when each was taken
	announced map[string]int             // funded generations
	ready     map[string]int             // generations announced on every place
	closes    map[string]map[int]closed
	refunded  map[string]bool
	revisions map[string]int64
}

type closed struct {
	closing
	seq, epoch int64
}

func newLedger(shards int) *ledger {
	l := &ledger{
		grants: map[key]hongbao.Grant{}, kept: map[identity]hongbao.Grant{}, announced: map[string]int{},
		ready: map[string]int{}, closes: map[string]map[int]closed{}, refunded: map[string]bool{},
		revisions: map[string]int64{}, rows: make([][]row, shards),
	}
	for range shards {
		l.locks = append(l.locks, map[*agent]int64{})
	}
	return l
}

// fenced reports whether a row fences an event. That is so if the row has a later epoch than the event, and the event's
// seq is above the row's floor.
func fenced(rows []row, seq, epoch int64) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.epoch > epoch && r.floor < seq })
}

// settle is the transaction of a settler. rows are the rows that its first statement has read.
func (l *ledger) settle(shard int, rows []row, batch []entry) {
	for _, e := range batch {
		switch has, is := l.grants[keyOf(&e.Grant)]; {
		case e.close != nil:
			if !fenced(rows, e.Seq, e.Epoch) && l.closes[e.Campaign][shard].epoch <= e.Epoch {
				if l.closes[e.Campaign] == nil {
					l.closes[e.Campaign] = map[int]closed{}
				}
				l.closes[e.Campaign][shard] = closed{*e.close, e.Seq, e.Epoch}
			}
		case is && idOf(&has) == idOf(&e.Grant):
		case is, l.refunded[e.Campaign], fenced(rows, e.Seq, e.Epoch):
			l.kept[idOf(&e.Grant)] = e.Grant
		default:
			l.grants[keyOf(&e.Grant)] = e.Grant
		}
	}
}

// refund ends a campaign if all its places are closed and the ledger has every grant up to the closes.
func (l *ledger) refund(s *spec) bool {
	for j, shard := range s.places {
		c, ok := l.closes[s.id][shard]
		if !ok || fenced(l.rows[shard], c.seq, c.epoch) {
			return false
		}
		n := 0
		for k := range l.grants {
			if k.campaign == s.id && int(k.packet-1)%len(s.places) == j {
				n++
			}
		}
		if n != c.granted {
			return false
		}
	}
	l.refunded[s.id] = true
	return true
}

// record is a record of the topic: a grant, a publisher's session, or a fence.
type record struct {
	kind          string
	at            int64
	pid, pidEpoch int
	number        int // number of the batch
	shard         int
	epoch         int64 // epoch of the fence or of the claim
	floor         int64 // floor of the fence
	grant         hongbao.Grant
}

// topic is a topic with one partition for all shards.
type topic struct {
	downUntil int64
	log       []record
	epochs    map[int]int // by producer id
	pids      int
}

// send appends a record. It fails if the producer id has a later epoch, and does nothing if the broker already has the
// batch.
func (t *topic) send(r record) string {
	if t.epochs[r.pid] > r.pidEpoch {
		return "fenced"
	}
	for i := range t.log {
		if o := &t.log[i]; r.kind == "grant" && o.kind == "grant" && o.pid == r.pid && o.number == r.number {
			return "copy"
		}
	}
	t.log = append(t.log, r)
	return "ok"
}

func (t *topic) has(g *hongbao.Grant) bool {
	return slices.ContainsFunc(t.log, func(r record) bool { return r.kind == "grant" && idOf(&r.grant) == idOf(g) })
}

func (t *topic) fences(end int) map[int]int64 {
	m := map[int]int64{}
	for _, r := range t.log[:end] {
		if r.kind == "fence" {
			m[r.shard] = max(m[r.shard], r.epoch)
		}
	}
	return m
}

// sorted returns the keys of a map in a fixed order, so that a seed always gives the same history.
func sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
