package restore_test

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// judge knows the truth: what was told to whom, and what each seq named.
type judge struct {
	tells    []*tell
	byPacket map[key][]*tell
	seqs     map[seqOf]name
	reported map[identity]bool
	dropped  map[identity]bool // a producer forgot it before it was settled
	holes    map[identity]bool // granted late
	snaps    map[string]map[int][]proof
	emptied  map[key]emptied
	read     int // records of the topic
	topical  map[identity]bool
	floors   map[int][]record // fences, by shard
}

// tell is an answer "you have won".
type tell struct {
	hongbao.Grant
	teller *producer
	// two: a primary that was cut off granted it, or one that was demoted and promoted, before anybody noticed.
	two bool
	// lost: after an opening the user has not got it, and may.
	lost bool
}

type seqOf struct {
	shard int
	seq   int64
}

type name struct {
	identity
	two bool
}

type emptied struct {
	generation int
	at         int64
}

func (j *judge) init() {
	*j = judge{
		byPacket: map[key][]*tell{}, seqs: map[seqOf]name{}, reported: map[identity]bool{}, dropped: map[identity]bool{},
		holes: map[identity]bool{}, snaps: map[string]map[int][]proof{}, emptied: map[key]emptied{},
		topical: map[identity]bool{}, floors: map[int][]record{},
	}
}

func (w *world) report(g *hongbao.Grant) {
	if !w.reported[idOf(g)] {
		w.reported[idOf(g)] = true
		w.note(nil, "reported", g.Campaign, g.Packet, g.User, g.RequestID)
		w.stats["grants reported"]++
	}
}

func (w *world) sentAll(attempt string, id int, proofs []proof) {
	if w.snaps[attempt] == nil {
		w.snaps[attempt] = map[int][]proof{}
	}
	w.snaps[attempt][id] = proofs
}

// inReport reports whether a person finds the grant.
func (w *world) inReport(g *hongbao.Grant) bool {
	_, kept := w.ledger.kept[idOf(g)]
	return kept || w.reported[idOf(g)]
}

// tell notes an answer, and looks for others that it contradicts.
func (w *world) tell(q *request, g *hongbao.Grant, p *producer, two bool) {
	w.stats["grants told"]++
	w.note(nil, "told", g.Campaign, g.Packet, g.User, g.RequestID, "seq", g.Seq, "epoch", g.Epoch, "by", p.id, two)
	t := &tell{Grant: *g, teller: p, two: two}
	for _, old := range w.byPacket[keyOf(g)] {
		if idOf(&old.Grant) == idOf(g) {
			t, two = nil, two || old.two
		}
	}
	for _, old := range q.told {
		if old.Packet != g.Packet && !old.lost && !old.two && !two && !w.inReport(&old.Grant) {
			w.fail("request %s was told packet %d, and then %d", q.id, old.Packet, g.Packet)
		}
	}
	if t == nil {
		return
	}
	for _, old := range w.byPacket[keyOf(g)] {
		w.stats["packets told twice"]++
		if !old.lost && !old.two && !two && !w.inReport(&old.Grant) {
			w.fail("packet %d of %s was told to %s, and then to %s", g.Packet, g.Campaign, old.User, g.User)
		}
	}
	e := w.emptied[key{g.Campaign, int64(g.Shard)}]
	if s := w.spec(g.Campaign); e.generation >= s.generation(g.Packet) && since(g.Time) > e.at && !two &&
		!w.holes[idOf(g)] {
		w.fail("place %d of %s was empty, and grants packet %d", g.Shard, g.Campaign, g.Packet)
	}
	q.told = append(q.told, t)
	w.tells = append(w.tells, t)
	w.byPacket[keyOf(g)] = append(w.byPacket[keyOf(g)], t)
}

func (w *world) spec(id string) *spec {
	for _, s := range w.specs {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (s *spec) generation(packet int64) int {
	for g, n := range s.generations {
		if packet -= n; packet <= 0 {
			return g + 1
		}
	}
	return 0
}

// sawEmpty notes that somebody was told that nothing is left at a place.
func (w *world) sawEmpty(id string, shard, generation int, asked int64) {
	if at := (key{id, int64(shard)}); w.emptied[at].generation < generation {
		w.emptied[at] = emptied{generation, asked}
	}
}

// soldOut judges that answer: a user with a receipt gets it. before is what the user had been told by then.
func (w *world) soldOut(q *request, before bool, began int64, a *agent) {
	if !before || slices.ContainsFunc(w.nodes, func(n *node) bool { return n.cut != nil && a.pinned[n.shard] }) {
		return
	}
	for _, shard := range q.spec.places {
		if c := w.nodes[shard].up.data.camps[q.spec.id]; c != nil {
			for _, g := range c.receipts[q.user] {
				if g.RequestID == q.id && since(g.Time) < began {
					w.fail("request %s is told sold_out, and has packet %d", q.id, g.Packet)
				}
			}
		}
	}
}

// opened judges an opening.
func (w *world) opened(r *recovery) {
	d, n := r.n.up.data, r.n
	w.note(r.a, "opened", r.n.shard, r.m, r.plan.verdict, "tops", r.plan.tops, r.plan.last, "epoch", d.epoch)
	n.flips = 0
	if r.plan.verdict == restore.Exact {
		w.stats["openings, exact"]++
	} else {
		w.stats["openings, guarded"]++
	}
	known := map[identity]bool{}
	for _, id := range r.plan.heard {
		for _, p := range w.snaps[r.m.attempt][id] {
			known[idOf(&p.Grant)] = true
		}
	}
	for _, t := range w.tells {
		if t.Shard == n.shard && !t.lost {
			w.judgeTell(r, d, t, known)
		}
	}
	if r.plan.verdict == restore.Guarded {
		for _, s := range w.specs {
			if len(s.places) == 1 {
				delete(w.emptied, key{s.id, int64(n.shard)})
			}
		}
	}
	if unnamed := restore.Holes([]stream.SeqRange{{First: d.trimmed + 1, Last: d.seq}},
		sorted(d.log, cmp.Compare[int64])); !d.named(unnamed) {
		w.fail("shard %d opens, and nobody knows what %v were", n.shard, unnamed)
	}
	for _, k := range sorted(w.ledger.grants, compareKeys) {
		if g := w.ledger.grants[k]; g.Shard == n.shard && !w.ledger.refunded[g.Campaign] && !d.receipt(&g) {
			w.fail("shard %d opens without packet %d of %s, which %s was paid", n.shard, g.Packet, g.Campaign, g.User)
		}
	}
}

// twin reports whether another grant of the same epoch has the seq: a server that was promoted twice used it again.
func (d *data) twin(t *tell) bool {
	e, is := d.log[t.Seq]
	return is && idOf(&e.Grant) != idOf(&t.Grant)
}

// named reports whether each of some ranges is skipped.
func (d *data) named(ranges []stream.SeqRange) bool {
	for _, r := range ranges {
		for seq := r.First; seq <= r.Last; seq++ {
			if seq = d.skipped(seq); seq == 0 {
				return false
			}
		}
	}
	return true
}

func (d *data) receipt(g *hongbao.Grant) bool {
	c := d.camps[g.Campaign]
	return c != nil && slices.ContainsFunc(c.receipts[g.User], func(h hongbao.Grant) bool { return idOf(&h) == idOf(g) })
}

// rivalled reports whether something speaks against a grant: another one of its packet or request, the limit, or a
// campaign that is over, or may be given to the user on another place.
func (w *world) rivalled(d *data, g *hongbao.Grant) bool {
	c, s := d.camps[g.Campaign], w.spec(g.Campaign)
	for user, held := range c.receipts {
		for i := range held {
			if held[i].Packet == g.Packet || user == g.User && held[i].RequestID == g.RequestID {
				return true
			}
		}
	}
	return c.state != "open" || len(s.places) > 1 || len(c.receipts[g.User]) >= s.limit
}

// judgeTell judges what has become of what somebody was told.
func (w *world) judgeTell(r *recovery, d *data, t *tell, known map[identity]bool) {
	id := idOf(&t.Grant)
	paid, is := w.ledger.grants[id.key]
	if d.receipt(&t.Grant) || w.ledger.refunded[t.Campaign] && is && idOf(&paid) == id {
		return
	}
	if w.inReport(&t.Grant) {
		if known[id] && t.Epoch == r.m.before && !w.rivalled(d, &t.Grant) {
			w.fail("packet %d of %s is in the report, and %s could have it", t.Packet, t.Campaign, t.User)
		}
		return
	}
	remembered := known[id] || is && idOf(&paid) == id || w.topic.has(&t.Grant)
	switch {
	case remembered:
		w.fail("shard %d opens without packet %d of %s: %s was told of it, and somebody remembers", t.Shard, t.Packet,
			t.Campaign, t.User)
	case d.camps[t.Campaign].has(t.Packet):
		w.stats["told grants that became holes"]++
	case t.two, w.ledger.refunded[t.Campaign]:
		w.stats["grants of a second primary"]++
	case r.plan.verdict == restore.Guarded && (t.Seq > r.plan.tops[t.Epoch] || d.twin(t)):
		w.stats["told grants beyond the margin"]++
	default:
		w.fail("shard %d opens (verdict %d) without packet %d of %s, seq %d, which is not withheld: %s was told of it",
			t.Shard, r.plan.verdict, t.Packet, t.Campaign, t.Seq, t.User)
	}
	t.lost = true
}
