package main

import (
	"sync"

	"github.com/hongbao-project/hongbao"
)

// tally counts the grants in a store, and compares each with the answer to its caller.
type tally struct {
	campaigns map[string]*raining
	announced int64

	mu   sync.Mutex
	seen map[packetOf]bool
	// events counts all grants. duplicates counts grants of a packet that was already seen. found counts packets whose
	// first grant equals the caller's answer.
	events, duplicates, found int64
}

type packetOf struct {
	campaign string
	packet   int64
}

// newTally returns an empty tally. No caller may grab any more, because the history must not change.
func newTally(campaigns []*raining) *tally {
	t := &tally{campaigns: map[string]*raining{}, seen: map[packetOf]bool{}}
	for _, c := range campaigns {
		t.campaigns[c.spec.ID] = c
		t.announced += int64(len(c.announced))
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
	if c := t.campaigns[g.Campaign]; c != nil && c.announced[g.Packet] == factOf(g) {
		t.found++
	}
}

// missing returns how many grants of the answers the store lacks or has with other fields.
func (t *tally) missing() int64 { return t.announced - t.found }
