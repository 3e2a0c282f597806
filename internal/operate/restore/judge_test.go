package restore_test

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// judge records the truth: which grants were reported to which users, and which grant has which seq outside of Redis.
type judge struct {
	wins     []*win
	byPacket map[key][]*win
	seqs     map[seqOf]identity // the grants in the topic and in the ledger
	reported map[identity]bool
	dropped  map[identity]bool // a producer forgot the grant before it was settled
	holes    map[identity]bool // granted late, from withheld packets
	snaps    map[string]map[int][]proof
	emptied  map[key]emptied
	read     int // number of checked records of the topic
	topical  map[identity]bool
	floors   map[int][]record // fences, by shard
}

// win is an answer to a user that grants a packet.
type win struct {
	hongbao.Grant
	producer *producer
	// two reports whether a second primary may have granted the same packet. The primary of this grant was cut off, or
	// it was demoted and promoted and no one has noticed yet.
	two bool
	// lost reports whether the shard opened without the grant, in a case that the protocol allows.
	lost bool
}

type seqOf struct {
	shard int
	seq   int64
}

type emptied struct {
	generation int
	at         int64
}

func (j *judge) init() {
	*j = judge{
		byPacket: map[key][]*win{}, seqs: map[seqOf]identity{}, reported: map[identity]bool{}, dropped: map[identity]bool{},
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

// inReport reports whether a person finds the grant in the report or in quarantine.
func (w *world) inReport(g *hongbao.Grant) bool {
	_, kept := w.ledger.kept[idOf(g)]
	return kept || w.reported[idOf(g)]
}

// noteWin records an answer that grants a packet. It fails if the answer contradicts an earlier one.
func (w *world) noteWin(q *request, g *hongbao.Grant, p *producer, two bool) {
	w.stats["grants reported to users"]++
	w.note(nil, "won", g.Campaign, g.Packet, g.User, g.RequestID, "seq", g.Seq, "epoch", g.Epoch, "by", p.id, two)
	t := &win{Grant: *g, producer: p, two: two}
	for _, old := range w.byPacket[keyOf(g)] {
		if idOf(&old.Grant) == idOf(g) {
			t, two = nil, two || old.two
		}
	}
	for _, old := range q.wins {
		if old.Packet != g.Packet && !old.lost && !old.two && !two && !w.inReport(&old.Grant) {
			w.fail("request %s was granted packet %d, and then packet %d", q.id, old.Packet, g.Packet)
		}
	}
	if t == nil {
		return
	}
	for _, old := range w.byPacket[keyOf(g)] {
		w.stats["packets reported twice"]++
		if !old.lost && !old.two && !two && !w.inReport(&old.Grant) {
			w.fail("packet %d of %s was reported to %s, and then to %s", g.Packet, g.Campaign, old.User, g.User)
		}
	}
	e := w.emptied[key{g.Campaign, int64(g.Shard)}]
	if s := w.spec(g.Campaign); e.generation >= s.generation(g.Packet) && since(g.Time) > e.at && !two &&
		!w.holes[idOf(g)] {
		w.fail("place %d of %s was empty, and then granted packet %d", g.Shard, g.Campaign, g.Packet)
	}
	q.wins = append(q.wins, t)
	w.wins = append(w.wins, t)
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

// sawEmpty records that a place has answered that it has no packet left.
func (w *world) sawEmpty(id string, shard, generation int, asked int64) {
	if at := (key{id, int64(shard)}); w.emptied[at].generation < generation {
		w.emptied[at] = emptied{generation, asked}
	}
}

// soldOut judges the answer sold_out. It fails if the request has a receipt. won reports whether the request was
// granted a packet before.
func (w *world) soldOut(q *request, won bool, began int64, a *agent) {
	if !won || slices.ContainsFunc(w.nodes, func(n *node) bool { return n.cut != nil && a.pinned[n.shard] }) {
		return
	}
	for _, shard := range q.spec.places {
		if c := w.nodes[shard].up.data.camps[q.spec.id]; c != nil {
			for _, g := range c.receipts[q.user] {
				if g.RequestID == q.id && since(g.Time) < began {
					w.fail("request %s gets the answer sold_out, and has packet %d", q.id, g.Packet)
				}
			}
		}
	}
}

// opened judges the opening of a shard.
func (w *world) opened(r *recovery) {
	d, n := r.n.up.data, r.n
	w.note(r.a, "opened", r.n.shard, r.m, r.plan.decision, "tops", r.plan.tops, r.plan.last, "epoch", d.epoch)
	n.flips = 0
	if r.plan.decision == restore.Exact {
		w.stats["openings, exact"]++
	} else {
		w.stats["openings, guarded"]++
	}
	known := map[identity]bool{}
	for _, id := range r.plan.sent {
		for _, p := range w.snaps[r.m.attempt][id] {
			known[idOf(&p.Grant)] = true
		}
	}
	for _, t := range w.wins {
		if t.Shard == n.shard && !t.lost {
			w.judgeWin(r, d, t, known)
		}
	}
	w.judgeMargin(r, d)
	if r.plan.decision == restore.Guarded {
		for _, s := range w.specs {
			if len(s.places) == 1 || r.plan.margin == 0 {
				delete(w.emptied, key{s.id, int64(n.shard)})
			}
		}
	}
	if unnamed := restore.Holes([]stream.SeqRange{{First: d.trimmed + 1, Last: d.seq}},
		sorted(d.log, cmp.Compare[int64])); !d.unused(unnamed) {
		w.fail("shard %d opens, but the seqs %v have no event and were not all skipped", n.shard, unnamed)
	}
	for _, k := range sorted(w.ledger.grants, compareKeys) {
		if g := w.ledger.grants[k]; g.Shard == n.shard && !w.ledger.refunded[g.Campaign] && !d.receipt(&g) {
			w.fail("shard %d opens without packet %d of %s, which %s was paid", n.shard, g.Packet, g.Campaign, g.User)
		}
	}
}

// judgeMargin checks how many packets are withheld for a silent process. After the last known grant these are at least
// as many as were granted in the last known margin. They are exactly as many if nothing else is a reason to withhold
// some.
func (w *world) judgeMargin(r *recovery, d *data) {
	if r.plan.decision != restore.Guarded {
		return
	}
	last, want := at(d.wrote), int64(0)
	for _, kept := range r.plan.kept {
		for _, k := range kept {
			if k.Time.After(last) {
				last = k.Time
			}
		}
	}
	for _, e := range d.log {
		if e.close == nil && e.Time.After(last.Add(-w.margin)) {
			want++
		}
	}
	for _, s := range r.here() {
		c := d.camps[s.id]
		if c.state != "open" || len(s.places) > 1 {
			continue
		}
		var known, have, withheld int64
		for packet, k := range r.plan.kept[s.id] {
			if !k.Moved {
				known = max(known, packet)
			}
		}
		for packet, epoch := range c.withheld {
			if epoch == r.m.epoch {
				withheld++
				if packet > known {
					have++
				}
			}
		}
		for packet := range r.plan.kept[s.id] {
			if packet > known {
				have++
			}
		}
		if have < want && c.left() > 0 {
			w.fail("shard %d opens with %d packets of %s withheld for a silent process, want %d", r.n.shard, have, s.id, want)
		}
		if r.onlyMargin(s) && withheld > want {
			w.fail("shard %d opens with %d packets of %s withheld, want the margin, %d", r.n.shard, withheld, s.id, want)
		}
	}
}

// onlyMargin reports whether nothing but the margin is a reason to withhold packets of the campaign.
func (r *recovery) onlyMargin(s *spec) bool {
	return len(r.plan.kept[s.id]) == 0 && r.plan.through[s.id] == 0 &&
		!slices.ContainsFunc(r.plan.spans, func(p span) bool { return len(p.Holes) > 0 || p.through[s.id] > 0 })
}

// twin reports whether another grant has the same seq, because a server that was promoted twice used it again.
func (d *data) twin(t *win) bool {
	e, is := d.log[t.Seq]
	return is && idOf(&e.Grant) != idOf(&t.Grant)
}

// unused reports whether openings have skipped all seqs of the ranges.
func (d *data) unused(ranges []stream.SeqRange) bool {
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

// rivalled reports whether a grant can't be restored. Another grant has its packet or its request, the user is at the
// limit, the campaign is over, or another place may grant to the user.
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

// judgeWin checks that the user still has the packet after an opening, or that the protocol allows the loss.
func (w *world) judgeWin(r *recovery, d *data, t *win, known map[identity]bool) {
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
		w.fail("shard %d opens without packet %d of %s: it was granted to %s, and a source knows it", t.Shard, t.Packet,
			t.Campaign, t.User)
	case d.camps[t.Campaign].has(t.Packet):
		w.stats["reported grants that became holes"]++
	case t.two, w.ledger.refunded[t.Campaign]:
		w.stats["grants of a second primary"]++
	case r.plan.decision == restore.Guarded && (t.Seq > r.plan.tops[t.Epoch] || d.twin(t)):
		w.stats["reported grants beyond the margin"]++
	default:
		w.fail("shard %d opens (decision %d) without packet %d of %s, seq %d, which is not withheld: granted to %s",
			t.Shard, r.plan.decision, t.Packet, t.Campaign, t.Seq, t.User)
	}
	t.lost = true
}
