package main

import (
	"sync"

	"github.com/hongbao-project/hongbao"
)

// tally counts grants that are found somewhere, and compares each with what its caller was told.
type tally struct {
	campaigns map[string]*raining
	told      int64

	mu   sync.Mutex
	seen map[packetOf]bool
	// events are all that came, duplicates those of a packet that was there before, found those that came first and are as
	// told.
	events, duplicates, found int64
}

type packetOf struct {
	campaign string
	packet   int64
}

// newTally begins when the callers have ended: from then on their history does not change.
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

// missing are the grants that callers heard of and that did not come, or came with other fields.
func (t *tally) missing() int64 { return t.told - t.found }
