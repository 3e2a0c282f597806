package restore_test

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// producer answers grabs. It is also a witness, because it remembers its answers.
type producer struct {
	w      *world
	id     int
	parts  []*agent
	memory []memo
	shards []known
	dead   bool
}

type memo struct {
	grant hongbao.Grant
	at    int64
}

// known is what a producer knows about a shard.
type known struct {
	seen      sight           // the latest event
	tops      map[int64]int64 // highest seq that it saw, by epoch
	line      int64           // time of its last witness line
	on        *server
	write     int   // number of the line's first write on that server
	confirmed bool  // whether every copy has that write
	epoch     int64 // answers of older epochs are discarded, because everything about them was sent
	answered  string
	late      int64 // epoch for which late evidence was sent
}

func (w *world) newProducer() {
	w.names++
	p := &producer{w: w, id: w.names, shards: make([]known, len(w.nodes))}
	p.parts = []*agent{w.spawn("watch", p.watch), w.spawn("grabs", p.grabs), w.spawn("grabs", p.grabs)}
	w.producers = append(w.producers, p)
}

// die ends a producer. New ones start until there are two.
func (p *producer) die() {
	p.dead = true
	p.w.stats["producers killed"]++
	for _, a := range p.parts {
		a.stop()
	}
	w := p.w
	w.agents = slices.DeleteFunc(w.agents, func(a *agent) bool { return slices.Contains(p.parts, a) })
	w.producers = slices.DeleteFunc(w.producers, func(o *producer) bool { return o == p })
	for len(w.producers) < 2 {
		w.newProducer()
	}
}

func (p *producer) grabs(a *agent) {
	for {
		a.wait(int64(50 + p.w.rng.IntN(400)))
		p.grab(a, p.w.someRequest())
	}
}

// grab walks over the campaign's places, with one call for each place.
func (p *producer) grab(a *agent, q *request) {
	w, began, won := p.w, p.w.now, len(q.wins) > 0
	generation, place, held := 1, 0, map[int]int{}
	if w.lateFilter(a, q) {
		w.soldOut(q, won, began, a)
		return
	}
	for range 40 {
		shard := q.spec.places[q.order[place]]
		n, k := w.nodes[shard], &p.shards[shard]
		s := n.of(a)
		if !p.speaks(n, s) {
			a.wait(100)
			continue
		}
		elsewhere := 0
		for j, h := range held {
			if j != place {
				elsewhere += h
			}
		}
		c := grab{s.token, w.now, k.seen, q.spec.id, q.user, q.id, generation, q.spec.limit, elsewhere}
		r := call(n, s, func(d *data) reply { return d.grab(shard, c) })
		if newest := k.newest(); r.epoch > 0 && r.epoch < newest {
			w.fail("shard %d answers in epoch %d, and the caller has seen epoch %d", shard, r.epoch, newest)
		}
		two, asked := s == n.cut || n.flips > 0, w.now
		w.note(a, "asked", q.id, "shard", shard, s.token, r.outcome, "epoch", r.epoch, "two", two)
		a.step("reply")
		if w.rng.IntN(20) == 0 {
			a.wait(100) // the reply is lost
			continue
		}
		if (r.epoch < k.epoch || !p.speaks(n, s)) && w.bug != "an answer after all was sent" {
			a.wait(100) // a recoverer may have decided without this answer, so it is discarded
			continue
		}
		k.saw(r.epoch, r.seq, w.loose())
		switch r.outcome {
		case "granted":
			p.remember(&r.grant)
			w.noteWin(q, &r.grant, p, two)
			return
		case "empty":
			if !two {
				w.sawEmpty(q.spec.id, shard, generation, asked)
			}
			held[place] = r.receiptsCount
			if place++; place == len(q.order) {
				if generation >= r.announced {
					w.soldOut(q, won, began, a)
					return
				}
				place, generation = 0, generation+1
			}
		case "ended", "limit":
			return
		default:
			a.wait(200)
		}
	}
}

// remember stores a grant that the producer reports to a user. It replaces an older copy of the grant.
func (p *producer) remember(g *hongbao.Grant) {
	p.memory = slices.DeleteFunc(p.memory, func(m memo) bool { return idOf(&m.grant) == idOf(g) })
	p.memory = append(p.memory, memo{*g, p.w.now})
}

func (k *known) saw(epoch, seq int64, loose bool) {
	if k.tops == nil {
		k.tops = map[int64]int64{}
	}
	k.seen, k.tops[epoch] = latest(k.seen, sight{epoch, seq}, loose), max(k.tops[epoch], seq)
}

// newest returns the latest epoch that the producer has seen.
func (k *known) newest() (epoch int64) {
	for e := range k.tops {
		epoch = max(epoch, e)
	}
	return epoch
}

// speaks reports whether the producer may answer users: its witness line is young, and every copy of the primary has
// it.
func (p *producer) speaks(n *node, s *server) bool {
	k := &p.shards[n.shard]
	if k.on != s || p.w.now-k.line > restore.Young.Milliseconds() {
		return false
	}
	k.confirmed = k.confirmed || n.confirmed(s, k.write) || p.w.bug == "a line that one server has"
	return k.confirmed
}

// watch checks every shard about once a second.
func (p *producer) watch(a *agent) {
	for {
		for i, n := range p.w.nodes {
			p.check(a, i, n)
			a.step("watch")
		}
		a.wait(800)
	}
}

func (p *producer) check(a *agent, i int, n *node) {
	w, k := p.w, &p.shards[i]
	s := n.of(a)
	id, now, seen, token, history := p.id, w.now, k.seen, s.token, s.history
	if w.bug == "founding after FLUSHALL" && !s.data.initialized && s.data.mend.attempt == "" {
		do(n, s, func(d *data) { w.initialize(d, i, token, history) })
	}
	open, newest := s.data.opened == token && s.data.history == history && !s.data.frozen, k.newest()
	v := call(n, s, func(d *data) view { return d.line(id, now, token, history, seen) })
	if open && v.frozen && newest < v.epoch {
		w.fail("shard %d of epoch %d freezes, and the process has seen no epoch later than %d", i, v.epoch, newest)
	}
	if k.on != s || now-k.line > restore.Young.Milliseconds() { // a copy may have no line, or one that is too old
		k.on, k.write, k.confirmed = s, n.written(), false
	}
	k.line = now
	switch {
	case v.frozen && v.mend.attempt != "" && v.mend.epoch > 0 && k.answered != v.mend.attempt:
		p.sendEvidence(a, n, k, v.mend)
		return
	case !v.frozen:
		k.saw(v.epoch, v.seq, w.loose())
		if v.epoch != k.late { // not <, because the producer may return from a primary that was left behind
			p.late(n, k, s, v.epoch)
		}
		p.forget(i, k, v)
	}
}

func (p *producer) proofs(shard int) (proofs []proof) {
	for _, m := range p.memory {
		if m.grant.Shard == shard {
			proofs = append(proofs, proof{Grant: m.grant})
		}
	}
	tops := p.shards[shard].tops
	for _, epoch := range sorted(tops, cmp.Compare[int64]) {
		if tops[epoch] > 0 {
			proofs = append(proofs, proof{epoch: epoch, seen: tops[epoch]})
		}
	}
	return proofs
}

// sendEvidence sends all evidence to the attempt, in two parts.
func (p *producer) sendEvidence(a *agent, n *node, k *known, m mend) {
	w := p.w
	k.epoch = m.epoch
	proofs, s, id := p.proofs(n.shard), n.of(a), p.id
	half := len(proofs) / 2
	call(n, s, func(d *data) bool { return d.evidence(id, m.attempt, proofs[:half], false) })
	a.step("testify")
	s = n.of(a)
	if call(n, s, func(d *data) bool { return d.evidence(id, m.attempt, proofs[half:], true) }) {
		k.answered = m.attempt
		w.sentAll(m.attempt, id, proofs)
	}
}

// late sends the grants of older epochs after an opening, because they may have reached the attempt too late.
func (p *producer) late(n *node, k *known, s *server, epoch int64) {
	w := p.w
	if w.bug == "late evidence ignored" {
		k.late, k.epoch = epoch, epoch
		return
	}
	proofs := slices.DeleteFunc(p.proofs(n.shard), func(p proof) bool { return p.Seq == 0 || p.Epoch >= epoch })
	token := s.token
	k.epoch = epoch
	if len(proofs) == 0 || call(n, s, func(d *data) bool { return d.lateEvidence(token, proofs) }) {
		k.late = epoch
	}
}

// forget drops grants that are settled and older than 10 s, or older than 60 s.
func (p *producer) forget(shard int, k *known, v view) {
	p.memory = slices.DeleteFunc(p.memory, func(m memo) bool {
		age := p.w.now - m.at
		settled := m.grant.Seq <= v.settled && m.grant.Epoch == v.epoch // seqs differ between epochs
		forgets := m.grant.Shard == shard && k.late == v.epoch && (age > 60_000 || age > 10_000 && settled)
		if forgets && !settled {
			p.w.dropped[idOf(&m.grant)] = true
		}
		return forgets
	})
}
