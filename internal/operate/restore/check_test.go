package restore_test

import (
	"cmp"

	"github.com/hongbao-project/hongbao"
)

// check checks the invariants after a step that has changed something.
func (w *world) check() {
	for _, n := range w.nodes {
		if n.changed {
			n.changed = false
			w.checkNode(n)
		}
	}
	w.checkTopic()
}

func (w *world) checkNode(node *node) {
	d := node.up.data
	for _, s := range w.specs {
		c := d.camps[s.id]
		if c == nil {
			continue
		}
		at, n := make([]string, 1+s.packets()), 0
		note := func(packet int64, where string) {
			if at[packet] != "" {
				w.fail("packet %d of %s is in %s and in %s", packet, s.id, at[packet], where)
			}
			at[packet] = where
			n++
		}
		for _, stock := range c.stock {
			for _, p := range stock {
				note(p, "the stock")
			}
		}
		for p := range c.withheld {
			note(p, "withheld")
		}
		for user, held := range c.receipts {
			for i := range held {
				note(held[i].Packet, user)
			}
		}
		if n != c.loaded {
			w.fail("%d packets of %s are on shard %d, want %d", n, s.id, node.shard, c.loaded)
		}
	}
	if d.frozen || !d.initialized {
		return
	}
	owners := map[int64]identity{}
	for _, g := range d.receipts() {
		if old, is := owners[g.Seq]; is {
			w.fail("seq %d of shard %d belongs to %v and to %v", g.Seq, node.shard, old, idOf(&g))
		}
		owners[g.Seq] = idOf(&g)
	}
}

// named records that a grant has left Redis under its seq. No other grant leaves Redis under that seq. A grant that was
// lost before any source knew it may have had the same seq.
func (w *world) named(g *hongbao.Grant) {
	at := seqOf{g.Shard, g.Seq}
	if old, is := w.seqs[at]; is && old != idOf(g) && !w.twofold(g.Campaign, g.User) &&
		!w.twofold(old.campaign, old.user) {
		w.fail("seq %d of shard %d is told of %v and of %v", g.Seq, g.Shard, old, idOf(g))
	}
	w.seqs[at] = idOf(g)
}

// checkTopic checks the new records. The topic must not have a grant twice, or a grant of an older epoch after a fence.
func (w *world) checkTopic() {
	for ; w.read < len(w.topic.log); w.read++ {
		c := &w.topic.log[w.read]
		if c.kind != "grant" {
			continue
		}
		if w.topical[idOf(&c.grant)] {
			w.fail("the topic has packet %d of %s for %s twice", c.grant.Packet, c.grant.Campaign, c.grant.User)
		}
		w.topical[idOf(&c.grant)] = true
		w.named(&c.grant)
		for _, f := range w.floors[c.shard] {
			if c.epoch < f.epoch && c.grant.Seq > f.floor {
				w.fail("a session of epoch %d appended seq %d after the fence of epoch %d", c.epoch, c.grant.Seq, f.epoch)
			}
		}
	}
}

// fenced records a fence. After it no session of an older epoch may append a grant above the floor.
func (w *world) fenced(shard int, epoch, floor int64) {
	w.floors[shard] = append(w.floors[shard], record{epoch: epoch, floor: floor})
}

// ended checks the final state. Every grant that was reported to a user must be paid or in the report, and every paid
// grant must be in the topic.
func (w *world) ended() {
	for _, t := range w.wins {
		paid, is := w.ledger.grants[keyOf(&t.Grant)]
		forgotten := (t.lost || t.two) && (t.producer.dead || w.dropped[idOf(&t.Grant)])
		if !(is && idOf(&paid) == idOf(&t.Grant)) && !w.inReport(&t.Grant) && !forgotten {
			w.fail("packet %d of %s was reported to %s (lost %v), and is neither paid nor in the report", t.Packet, t.Campaign,
				t.User, t.lost)
		}
	}
	for _, k := range sorted(w.ledger.grants, compareKeys) {
		g := w.ledger.grants[k]
		w.named(&g)
		if !w.topical[idOf(&g)] {
			w.fail("packet %d of %s is paid and not announced", g.Packet, g.Campaign)
		}
	}
	over := map[identity]int{}
	for _, s := range w.specs {
		loaded, granted := 0, 0
		for _, shard := range s.places {
			c := w.nodes[shard].up.data.camps[s.id]
			loaded += c.loaded
			granted += c.granted()
			w.stats["withheld at the end"] += len(c.withheld)
			for user, held := range c.receipts {
				over[identity{key{s.id, 0}, user, ""}] += len(held)
			}
		}
		paid := 0
		for k := range w.ledger.grants {
			if k.campaign == s.id {
				paid++
			}
		}
		if paid != granted {
			w.fail("%s: %d packets granted, %d paid", s.id, granted, paid)
		}
	}
	for _, id := range sorted(over, func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.campaign, b.campaign), cmp.Compare(a.user, b.user))
	}) {
		if over[id] > w.spec(id.campaign).limit && !w.twofold(id.campaign, id.user) {
			w.fail("%s has %d packets of %s", id.user, over[id], id.campaign)
		}
	}
}

// twofold reports whether two primaries may have answered the user.
func (w *world) twofold(id, user string) bool {
	for _, t := range w.wins {
		if t.two && t.Campaign == id && t.User == user {
			w.stats["users above a limit by two primaries"]++
			return true
		}
	}
	return false
}
