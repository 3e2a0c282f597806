package restore_test

import "slices"

func (w *world) settler(a *agent) {
	for {
		a.wait(int64(100 + w.rng.IntN(300)))
		shard := w.rng.IntN(len(w.nodes))
		n := w.nodes[shard]
		s := n.of(a)
		if s.data.guard(s.token, 0, sight{}) != "" {
			continue
		}
		epoch, batch := s.data.epoch, w.unsettled(s.data)
		if len(batch) == 0 {
			continue
		}
		a.step("begin")
		if w.ledger.downUntil > w.now {
			continue
		}
		rows := w.ledger.rows[shard]
		if w.bug != "a sleeping commit" {
			w.ledger.locks[shard][a] = w.now
		}
		a.step("insert")
		a.step("commit")
		if w.bug != "a sleeping commit" {
			if _, ok := w.ledger.locks[shard][a]; !ok {
				continue // the database has aborted the transaction
			}
			delete(w.ledger.locks[shard], a)
		}
		if w.ledger.downUntil > w.now {
			continue
		}
		w.ledger.settle(shard, rows, batch)
		a.step("bits")
		var seqs, closes []int64
		for _, e := range batch {
			seqs = append(seqs, e.Seq)
			if e.close != nil {
				closes = append(closes, e.Seq)
			}
		}
		token := s.token
		call(n, s, func(d *data) string {
			if len(closes) > 0 {
				d.done(token, epoch, toTopic, closes) // a close is not published, so it is done at once
			}
			return d.done(token, epoch, toLedger, seqs)
		})
	}
}

// unsettled returns up to four entries without the ledger's done bit, ordered by seq.
func (w *world) unsettled(d *data) (batch []entry) {
	for seq, e := range d.log {
		if !d.bits[toLedger][seq] {
			batch = append(batch, e)
		}
	}
	slices.SortFunc(batch, func(a, b entry) int { return int(a.Seq - b.Seq) })
	return batch[:min(len(batch), 1+w.rng.IntN(4))]
}

// session is a publisher's session: a producer id with its epoch.
type session struct {
	pid, epoch, number int
	recorded           int64
	fences             map[int]int64
}

// recorded is the maximum age of a session's last record when the session claims, in ms.
const recorded = 10_000

func (w *world) publisher(a *agent) {
	var p session
	for {
		a.wait(int64(100 + w.rng.IntN(300)))
		if w.topic.downUntil > w.now {
			continue
		}
		if p.pid == 0 {
			w.topic.pids++
			p = session{pid: w.topic.pids}
			w.record(a, &p)
		}
		w.publish(a, &p)
	}
}

// record writes a record that the session is in use, and reads all fences before that record.
func (w *world) record(a *agent, p *session) {
	if w.topic.send(record{kind: "session", at: w.now, pid: p.pid, pidEpoch: p.epoch}) == "fenced" {
		p.pid = 0
		return
	}
	p.recorded = w.now
	end := len(w.topic.log)
	a.step("session")
	p.fences = w.topic.fences(end)
}

func (w *world) publish(a *agent, p *session) {
	shard := w.rng.IntN(len(w.nodes))
	n := w.nodes[shard]
	s := n.of(a)
	fenced := func() bool { return p.fences[shard] > s.data.epoch && w.bug != "a session from after the fence" }
	if fenced() {
		return // this server is an old primary that was left behind
	}
	p.number++
	token, now, pid, pidEpoch, number := s.token, w.now, p.pid, p.epoch, p.number
	type answer struct {
		c     claim
		taken bool
		epoch int64
	}
	r := call(n, s, func(d *data) answer {
		c, taken, epoch := d.claim(token, now, pid, pidEpoch, number)
		return answer{c, taken, epoch}
	})
	if r.c.fence == 0 {
		return
	}
	w.note(a, "claim", shard, s.token, r.c, r.taken, r.epoch, "session", p.pid, p.recorded)
	a.step("claimed")
	settle := func(done bool) {
		a.step("settle")
		call(n, s, func(d *data) string { return d.settle(token, r.epoch, r.c, done) })
	}
	if w.bug != "a claim after a promotion" && s.history != s.data.history {
		return // Redis may have lost the claim and written it again
	}
	if r.taken {
		w.resolve(a, p, &r.c, r.epoch, settle)
		return
	}
	if r.c.at-p.recorded > recorded && w.bug != "an idle producer id" {
		if w.topic.downUntil > w.now {
			settle(false)
			return
		}
		if w.record(a, p); p.pid == 0 {
			settle(false)
			return
		}
		a.step("send")
	}
	if fenced() || w.topic.downUntil > w.now {
		settle(false)
		return
	}
	switch w.send(shard, p.pid, p.epoch, &r.c) {
	case "fenced":
		p.pid = 0
		settle(false)
	default:
		if w.rng.IntN(10) > 0 {
			settle(true) // in one of ten cases the broker's answer is lost
		}
	}
}

func (w *world) send(shard, pid, epoch int, c *claim) string {
	out := w.topic.send(record{
		kind: "grant", at: w.now, pid: pid, pidEpoch: epoch, number: c.number, shard: shard, epoch: c.epoch,
		grant: c.Grant,
	})
	w.note(nil, "send", shard, pid, epoch, *c, out)
	return out
}

// resolve finds out whether the topic has the grant of a claim that was taken over.
func (w *world) resolve(a *agent, p *session, c *claim, epoch int64, settle func(bool)) {
	a.step("resolve")
	if w.topic.downUntil > w.now {
		return
	}
	if c.epoch == epoch && w.send(c.Shard, c.pid, c.pidEpoch, c) != "fenced" {
		settle(true)
		return
	}
	if w.bug == "an old claim sent again" {
		w.send(c.Shard, p.pid, p.epoch, &claim{number: c.number + 1_000_000, epoch: c.epoch, Grant: c.Grant})
		settle(true)
		return
	}
	w.topic.epochs[c.pid]++
	a.step("read back")
	settle(w.topic.has(&c.Grant))
}

// trimmer trims the shards. It freezes a shard if the ledger has a later epoch, because a recoverer has restored that
// shard on another server.
func (w *world) trimmer(a *agent) {
	for {
		a.wait(1_000)
		for i, n := range w.nodes {
			s, now := n.of(a), w.now
			rows := w.ledger.rows[i]
			token, epoch := s.token, rows[len(rows)-1].epoch
			do(n, s, func(d *data) { d.trim(token, now) })
			if w.ledger.downUntil <= w.now {
				do(n, s, func(d *data) { d.behind(token, epoch) })
			}
		}
	}
}

func (w *world) sponsor(a *agent, s *spec) {
	up := func() bool {
		a.wait(int64(100 + w.rng.IntN(200)))
		return w.ledger.downUntil <= w.now
	}
	for s.topUpAt > 0 && w.now < s.closeAt && w.ledger.ready[s.id] < 2 {
		if !up() || w.now < s.topUpAt {
			continue
		}
		w.ledger.announced[s.id] = 2
		if w.everywhere(a, s, func(d *data, token string, _ int) string { return d.announce(token, s.id, 2) }) && up() {
			w.ledger.ready[s.id] = 2
		}
	}
	if w.ledger.ready[s.id] == 2 {
		w.everywhere(a, s, func(d *data, token string, j int) string { return d.deal(token, s.id, 2, s.dealt(j, 2)) })
	}
	for w.now < s.closeAt && !w.calm {
		a.wait(1_000)
	}
	for !w.ledger.refunded[s.id] {
		now := w.now
		w.everywhere(a, s, func(d *data, token string, _ int) string { return d.close(token, now, s.id) })
		if up() {
			if w.ledger.refund(s) {
				w.note(a, "refunded", s.id)
			}
		}
	}
	for {
		a.wait(1_000_000)
	}
}

// everywhere runs a script on each place, and retries it until it succeeds. It returns false if the campaign has ended.
func (w *world) everywhere(a *agent, s *spec, f func(d *data, token string, place int) string) bool {
	for j, shard := range s.places {
		for {
			n := w.nodes[shard]
			to := n.of(a)
			switch call(n, to, func(d *data) string { return f(d, to.token, j) }) {
			case "":
			case "ended":
				return false
			default:
				a.wait(300)
				continue
			}
			break
		}
		a.step("everywhere")
	}
	return true
}
