package restore_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.campaign, b.campaign), cmp.Compare(a.packet, b.packet))
}

func (d *data) receipts() (all []hongbao.Grant) {
	for _, id := range sorted(d.camps, cmp.Compare[string]) {
		for _, held := range d.camps[id].receipts {
			all = append(all, held...)
		}
	}
	slices.SortFunc(all, func(a, b hongbao.Grant) int { return compareKeys(keyOf(&a), keyOf(&b)) })
	return all
}

func (r *recovery) here() (specs []*spec) {
	for _, s := range r.specs {
		if s.place(r.n.shard) >= 0 {
			specs = append(specs, s)
		}
	}
	return specs
}

// merge is step 5: it merges the known grants.
func (r *recovery) merge() bool {
	d := r.s.data
	claims := restore.Constraints{
		Passed:  func(g *hongbao.Grant) bool { return g.Seq <= r.m.intact },
		LeftOut: r.missed,
		Limit:   func(id string) int64 { return int64(r.spec(id).limit) },
		Withheld: func(id string, packet int64) bool {
			c := d.camps[id]
			return c != nil && c.state == "open" && c.has(packet)
		},
	}
	for _, n := range r.nodes {
		for _, g := range n.up.data.receipts() {
			if n != r.n || g.Seq <= r.m.intact {
				claims.Fixed = append(claims.Fixed, g)
			}
		}
	}
	kept, lost := restore.Merge(r.plan.known, claims)
	r.closed()
	owned, last := r.plan.owned, d.seq
	for _, o := range r.ledger.rows[r.n.shard] {
		last = max(last, o.last, r.plan.tops[o.epoch])
	}
	for _, k := range slices.Concat(kept, lost) {
		owned = append(owned, sight{k.Epoch, k.Seq})
	}
	for _, k := range lost {
		r.report(&k.Grant)
		if k.Seq > r.m.intact {
			r.plan.through[k.Campaign] = max(r.plan.through[k.Campaign], k.Packet)
		}
	}
	r.number(kept, last)
	r.note(r.a, "merge", fmt.Sprintf("%+v", r.m), "decision", r.plan.decision, "tops", r.plan.tops, "seen", r.plan.seen,
		"sent", r.plan.sent, d.lines, d.wrote, d.frozenAt)
	r.plan.spans = r.spans(owned)
	r.guard()
	return true
}

// guard decides whether packets are withheld, and how many in addition to those for unknown events.
func (r *recovery) guard() {
	holes, wide := false, false
	for _, s := range r.plan.spans {
		holes = holes || len(s.Holes) > 0
	}
	for _, s := range r.here() {
		wide = wide || len(s.places) > 1 && !r.ledger.refunded[s.id]
	}
	lost := r.lost()
	r.plan.guard = restore.GuardOf(restore.Doubt{
		Silent: r.plan.decision == restore.Guarded, Walks: holes && wide, Lost: lost, Margin: r.margin,
	})
	if r.bug == "a margin only for a known loss" && !lost {
		r.plan.guard = restore.None
	}
	if r.plan.guard == restore.Withhold {
		r.plan.margin = r.s.data.recent(r.plan.kept, r.m.intact, r.margin)
	}
}

// recent counts the grants in the time before the last write of which a source knows.
func (d *data) recent(kept map[string]map[int64]restore.Known, intact int64, during time.Duration) (n int64) {
	last, times := at(d.wrote), []time.Time{}
	for _, packets := range kept {
		for _, k := range packets {
			times = append(times, k.Time)
			if k.Time.After(last) {
				last = k.Time
			}
		}
	}
	for _, e := range d.log {
		if e.Seq <= intact && e.close == nil {
			times = append(times, e.Time)
		}
	}
	for _, t := range times {
		if t.After(last.Add(-during)) {
			n++
		}
	}
	return n
}

// lost reports whether a source knows a grant or an event that Redis does not have.
func (r *recovery) lost() bool {
	d := r.s.data
	for epoch, seq := range r.plan.tops {
		if epoch > d.epoch || seq > d.seq {
			return true
		}
	}
	return slices.ContainsFunc(r.plan.known, func(k restore.Known) bool { return !d.receipt(&k.Grant) })
}

// missed reports whether an earlier opening left out this grant, which belongs to a campaign with several places.
func (r *recovery) missed(g *hongbao.Grant) bool {
	return len(r.spec(g.Campaign).places) > 1 && slices.ContainsFunc(r.ledger.rows[r.n.shard], func(o row) bool {
		return o.opening && o.epoch > g.Epoch && o.floor < g.Seq && !o.restored[idOf(g)]
	})
}

// number chooses the last seq that the opening skips. Grants that get a new seq get the last ones up to it.
func (r *recovery) number(kept []restore.Known, known int64) {
	var moved int64
	for _, k := range kept {
		if k.Moved {
			moved++
		}
	}
	r.plan.last = known + moved + r.jumps
	next := r.plan.last - moved
	r.plan.kept = map[string]map[int64]restore.Known{}
	for _, k := range kept {
		if k.Moved {
			next++
			k.Seq = next
			r.stats["grants that got a new seq"]++
		}
		if r.plan.kept[k.Campaign] == nil {
			r.plan.kept[k.Campaign] = map[int64]restore.Known{}
		}
		r.plan.kept[k.Campaign][k.Packet] = k
		r.stats["grants restored from "+[]string{"the ledger", "Redis", "the topic", "witnesses"}[k.From]]++
	}
}

// closed notes which campaigns have lost their close, and adds the seqs of all closes to the owned seqs.
func (r *recovery) closed() {
	own := func(seq, epoch int64) {
		r.plan.owned = append(r.plan.owned, sight{epoch, seq})
		r.saw(epoch, seq)
	}
	for _, s := range r.here() {
		c, is := r.ledger.closes[s.id][r.n.shard]
		lost := is && c.seq > r.m.intact
		if lost {
			own(c.seq, c.epoch)
		}
		if c := r.s.data.camps[s.id]; c != nil && c.state == "closed" && c.closedAt > r.m.intact {
			lost = true // a restored grant may have got the close's seq
		}
		for seq, e := range r.s.data.log {
			if e.Campaign == s.id && e.close != nil && seq > r.m.intact {
				own(seq, e.Epoch)
			}
		}
		if lost && !r.ledger.refunded[s.id] {
			r.plan.closes = append(r.plan.closes, s.id)
		}
	}
}

// campaigns restores the campaigns' generations and refunds from the ledger, before step 6.
func (r *recovery) campaigns() bool {
	for _, s := range r.here() {
		var generations [][]int64
		for g := range r.ledger.ready[s.id] {
			generations = append(generations, s.dealt(s.place(r.n.shard), g+1))
		}
		announced, ended := r.ledger.announced[s.id], r.ledger.refunded[s.id]
		if !r.script("campaigns", func(d *data, b by) bool {
			return d.campaign(b, s.id, generations, announced, ended)
		}) {
			return false
		}
	}
	return true
}

// planned returns the steps for a campaign's packets. share is used by a planted bug, with which only the first
// campaign gets the holes.
func (r *recovery) planned(campaign *spec, share *bool) []restore.Step {
	c := r.s.data.camps[campaign.id]
	if c == nil {
		return nil // happens only with a planted bug
	}
	refunded := r.ledger.refunded[campaign.id]
	if c.state == "closed" && !slices.Contains(r.plan.closes, campaign.id) {
		return nil // Redis has not lost the close
	}
	p := restore.Place{Known: r.plan.kept[campaign.id], Through: r.plan.through[campaign.id]}
	for _, s := range r.plan.spans {
		s.Through = s.through[campaign.id]
		if refunded || r.bug == "two campaigns sharing a hole" && *share {
			s.Holes = nil
		}
		p.Spans = append(p.Spans, s.Span)
	}
	*share = true
	var steps []restore.Step // an earlier opening has withheld these packets
	for _, packet := range sorted(c.withheld, cmp.Compare[int64]) {
		if c.withheld[packet] > r.m.before {
			p.Packets = append(p.Packets, packet)
		} else if k, is := p.Known[packet]; is {
			steps = append(steps, restore.Step{Packet: packet, Grant: &k})
		}
	}
	for _, stock := range c.stock {
		p.Packets = append(p.Packets, stock...)
	}
	for _, held := range c.receipts {
		for i := range held {
			if held[i].Seq > r.m.intact {
				p.Packets = append(p.Packets, held[i].Packet)
			}
		}
	}
	slices.Sort(p.Packets)
	holes := slices.ContainsFunc(p.Spans, func(s restore.Span) bool { return len(s.Holes) > 0 })
	guarded := r.plan.guard == restore.Withhold
	if guarded && len(campaign.places) > 1 && (holes || r.plan.margin > 0) {
		for g := range c.dealt { // no source knows which users found the place empty
			dealt := campaign.dealt(campaign.place(r.n.shard), g+1)
			p.Through = max(p.Through, slices.Max(append(dealt, 0)))
		}
	}
	if guarded && !refunded {
		p.Margin = r.plan.margin
		r.stats["packets of margins"] += int(p.Margin)
	}
	return append(steps, restore.Plan(p)...)
}

// record is step 6: it records the plan in the ledger before any packet is restored.
func (r *recovery) record() bool {
	r.a.step("record")
	for r.ledger.downUntil > r.now {
		if !r.wait("record") {
			return false
		}
	}
	if r.gone() {
		return false
	}
	r.plan.steps = map[string][]restore.Step{}
	through, shared := map[string]int64{}, false
	for _, s := range r.here() {
		steps := r.planned(s, &shared)
		r.plan.steps[s.id] = steps
		if len(steps) > 0 {
			through[s.id] = steps[len(steps)-1].Packet
		}
	}
	rows := r.ledger.rows[r.n.shard]
	if o := &rows[len(rows)-1]; o.attempt == r.m.attempt && o.turn == r.m.turn {
		o.tops, o.through, o.last, o.restored = r.plan.tops, through, r.plan.last, map[identity]bool{}
		for _, kept := range r.plan.kept {
			for _, k := range kept {
				o.restored[idOf(&k.Grant)] = true
			}
		}
		for id := range r.plan.steps {
			r.ledger.revisions[id]++
		}
		return true
	}
	return r.bug == "a second recoverer with an older view"
}

// restore is step 7: it restores or withholds the packets.
func (r *recovery) restore() bool {
	for _, s := range r.here() {
		steps := r.plan.steps[s.id]
		if r.bug == "a remembered packet dealt again" && len(steps) > 0 && steps[len(steps)-1].Grant != nil {
			steps = steps[:len(steps)-1]
		}
		r.note(r.a, "plan", s.id, steps)
		for chunk := range slices.Chunk(steps, 2) {
			if !r.script("restore", func(d *data, b by) bool { return d.restore(b, s.id, chunk) }) {
				return false
			}
		}
	}
	return true
}

// mark is step 8: it sets the done bits of each sink.
func (r *recovery) mark() bool {
	for sink := range 2 {
		var seqs []int64
		for _, seq := range sorted(r.s.data.log, cmp.Compare[int64]) {
			e := r.s.data.log[seq]
			paid, is := r.ledger.grants[keyOf(&e.Grant)]
			switch {
			case e.close != nil, sink == toLedger && (!is || idOf(&paid) != idOf(&e.Grant)):
			case sink == toTopic && !r.topic.has(&e.Grant):
			case sink == toTopic && r.bug == "done bits for the suffix only" && seq <= r.m.intact:
			default:
				seqs = append(seqs, seq)
			}
		}
		if !r.script("mark", func(d *data, b by) bool { return d.mark(b, sink, seqs) }) {
			return false
		}
	}
	return true
}

func (r *recovery) revision(id string) int64 { return r.ledger.revisions[id] * 1000 }

// revise is the part of step 9 on other shards: it raises the revisions of the campaigns there.
func (r *recovery) revise() bool {
	if r.bug == "an old filter" {
		return true
	}
	for _, s := range r.here() {
		for _, shard := range s.places {
			if shard != r.n.shard {
				r.a.step("revise")
				revision := r.revision(s.id)
				n := r.nodes[shard]
				do(n, n.up, func(d *data) { d.revise(s.id, revision) })
			}
		}
	}
	return true
}

// jump is step 9 on this shard: the seq jumps, and campaigns that have lost their close are closed again.
func (r *recovery) jump() bool {
	revisions := map[string]int64{}
	for _, s := range r.here() {
		if r.bug != "an old filter" {
			revisions[s.id] = r.revision(s.id)
		}
	}
	last, closes := r.plan.last, r.plan.closes
	return r.script("jump", func(d *data, b by) bool { return d.jump(b, last, closes, revisions) })
}

// open is step 10: it announces the opening in the ledger, and opens the shard.
func (r *recovery) open() bool {
	r.a.step("announce the opening")
	for r.ledger.downUntil > r.now {
		if !r.wait("announce the opening") {
			return false
		}
	}
	rows := r.ledger.rows[r.n.shard]
	if o := &rows[len(rows)-1]; o.attempt == r.m.attempt && o.turn == r.m.turn {
		o.opening = true
	} else if r.bug != "a second recoverer with an older view" {
		return false
	}
	seen := r.plan.seen
	if !r.script("open", func(d *data, b by) bool { return d.open(b, seen) }) {
		return false
	}
	if r.s == r.n.up {
		r.opened(r)
	}
	return true
}
