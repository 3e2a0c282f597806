package main

import (
	"sync"

	"github.com/hongbao-project/hongbao"
)

// tally counts the grants of a store, and compares each with its caller's answer.
type tally struct {
	campaigns map[string]*raining
	told      int64

	mu   sync.Mutex
	seen map[packetOf]bool
	// events are all grants. duplicates are those of a packet that was counted before. found are the first grants of
	// a packet that equal the caller's answer.
	events, duplicates, found int64
}

type packetOf struct {
	campaign string
	packet   int64
}

// newTally returns an empty tally. The callers must have ended: their history does not change any more.
func newTally(campaigns []*raining) *tally {
	t := &tally{campaigns: map[string]*raining{}, seen: map[packetOf]bool{}}
	for _, c := range campaigns {
		t.campaigns[c.spec.ID] = c
		t.told += int64(len(c.told))
	}
	return t
}

func (t *tally) add(g *hongbao.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events++
	k := packetOf{g.Campaign, g.Packet}
	if t.seen[k] {
		t.duplicates++
		return
	}
	t.seen[k] = true
	if c := t.campaigns[g.Campaign]; c != nil && c.told[g.Packet] == factOf(g) {
		t.found++
	}
}

// missing returns how many grants in the callers' answers are not there, or have other fields.
func (t *tally) missing() int64 { return t.told - t.found }
