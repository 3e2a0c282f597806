package restore_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// recovery is the work of one recoverer on one attempt.
type recovery struct {
	*world
	a     *agent
	n     *node
	s     *server
	m     mend
	since int64 // when the event with the intact seq was written
	from  int64 // the ledger's epoch before this attempt's fence
	plan  plan
}

// plan is what a recoverer has read and decided.
type plan struct {
	decision restore.Decision
	guard    restore.Guard
	margin   int64
	sent     []int // witnesses that have sent everything
	seen     sight
	known    []restore.Known
	kept     map[string]map[int64]restore.Known
	through  map[string]int64 // last packet that a source knows as dealt, by campaign
	tops     map[int64]int64  // highest seq that any process saw, by epoch
	last     int64
	owned    []sight // known events that are not restored
	spans    []span
	steps    map[string][]restore.Step
	closes   []string
}

// span is a restore.Span for all campaigns. through has Span.Through by campaign.
type span struct {
	restore.Span
	through map[string]int64
}

func (w *world) recoverer(a *agent, shard int) {
	for {
		a.wait(300)
		n := w.nodes[shard]
		s := n.of(a)
		if s.data.frozen || !s.data.initialized {
			(&recovery{world: w, a: a, n: n, s: s}).run()
		}
	}
}

// run takes the steps of docs/design/restore.md. It ends early if another recoverer or a newer attempt has taken the
// shard over.
func (r *recovery) run() {
	for _, step := range []func() bool{
		r.take, r.fenceLedger, r.fenceTopic, r.collect, r.merge, r.campaigns, r.record, r.restore, r.mark, r.revise,
		r.jump, r.open,
	} {
		if !step() {
			return
		}
	}
}

// script runs a script of the attempt, and fails if another attempt or recoverer owns the shard.
func (r *recovery) script(where string, f func(d *data, b by) bool) bool {
	r.a.step(where)
	if where == "open" && r.s.history != r.m.history {
		return false
	}
	b := by{r.m, r.now, r.bug == "a second recoverer with an older view"}
	before := r.s.data.mend
	if !call(r.n, r.s, func(d *data) bool { return f(d, b) }) {
		return false
	}
	if r.s == r.n.up && (before.attempt != b.attempt || before.turn != b.turn) {
		r.fail("%s: written by %s turn %d, in %s turn %d", where, b.attempt, b.turn, before.attempt, before.turn)
	}
	r.m.cursor++
	return true
}

// take is step 1: it freezes the shard, and notes the attempt.
func (r *recovery) take() bool {
	d, s, was := r.s.data, r.s, r.s.data.mend
	if r.ledger.downUntil > r.now {
		return false // the ledger's floors are needed to find the intact seq
	}
	now := was
	now.turn++
	rows := r.ledger.rows[r.n.shard]
	r.from = rows[len(rows)-1].epoch
	superseded := slices.ContainsFunc(rows[:len(rows)-1], func(o row) bool { return o.attempt == was.attempt })
	if was.attempt == "" || was.token != s.token || was.history != s.history || superseded {
		r.names++
		now = mend{
			attempt: fmt.Sprint("attempt", r.names), turn: 1, token: s.token, history: s.history, before: d.epoch,
			direct: s.promoted && s.token != d.opened && d.history != "" && s.before == d.history ||
				was.direct && s.promoted && s.token != was.token && s.before == was.history,
		}
		found := restore.ShardState{Seq: d.seq, Certain: d.certain(), OnePromotion: now.direct}
		if was.attempt != "" && r.bug != "after an unfinished restore, meta.seq is taken as the intact seq" {
			found.Floors = append(found.Floors, was.intact) // it may have written events above its floor
		}
		for _, o := range rows {
			if o.epoch > d.epoch && r.bug != "after an unfinished restore, meta.seq is taken as the intact seq" {
				found.Floors = append(found.Floors, o.floor)
			}
		}
		found.OnePromotion = found.OnePromotion || r.bug == "two promotions"
		now.intact = restore.Intact(found)
	}
	seq, epoch := d.seq, d.epoch
	r.a.step("freeze")
	ms := r.now
	if !call(r.n, s, func(d *data) bool { return d.take(was, now, seq, epoch, ms) }) {
		return false
	}
	if now.turn > 1 {
		r.stats["attempts that another recoverer continued"]++
	}
	r.m = now
	r.since = d.trimmedAt
	for _, e := range s.data.log {
		if e.Seq <= now.intact {
			r.since = max(r.since, since(e.Time))
		}
	}
	return true
}

// certain returns the last seq that was written at least Overlap before the last write, as store.LastBefore does.
func (d *data) certain() int64 {
	seq, wrote := d.trimmed, d.wrote
	if !d.frozen {
		wrote = d.last
	}
	for _, e := range d.log {
		if !e.Time.After(at(wrote).Add(-restore.Overlap)) {
			seq = max(seq, e.Seq)
		}
	}
	return seq
}

// gone reports whether another recoverer has taken over the attempt, or Redis has lost it.
func (r *recovery) gone() bool {
	m := r.s.data.mend
	return m.attempt != r.m.attempt || (m.turn != r.m.turn || m.cursor != r.m.cursor) &&
		r.bug != "a second recoverer with an older view"
}

// wait extends the attempt's lease while a server is down or a witness is silent.
func (r *recovery) wait(where string) bool {
	r.a.asleep = r.now + 200
	r.a.step(where)
	b := by{mend: r.m, ms: r.now}
	return call(r.n, r.s, func(d *data) bool { return d.renew(b) })
}

// fenceLedger is step 2. It waits for transactions that have already read the rows, and ends them after three seconds.
func (r *recovery) fenceLedger() bool {
	r.a.step("fence the ledger")
	l, shard := r.ledger, r.n.shard
	for {
		for a, at := range l.locks[shard] {
			if r.now-at > 3_000 {
				delete(l.locks[shard], a)
			}
		}
		if l.downUntil <= r.now && len(l.locks[shard]) == 0 {
			break
		}
		if !r.wait("fence the ledger") {
			return false
		}
	}
	rows := l.rows[shard]
	last := &rows[len(rows)-1]
	switch {
	case last.attempt == r.m.attempt && last.turn <= r.m.turn:
		last.turn = r.m.turn
	case last.epoch != r.from || slices.ContainsFunc(rows, func(o row) bool { return o.attempt == r.m.attempt }):
		return false
	default:
		l.rows[shard] = append(rows, row{
			epoch: last.epoch + 1, floor: r.m.intact, token: r.m.token, attempt: r.m.attempt, turn: r.m.turn,
		})
	}
	epoch := l.rows[shard][len(l.rows[shard])-1].epoch
	if !r.script("ask the witnesses", func(d *data, b by) bool { return d.ask(b, epoch) }) {
		return false
	}
	r.m.epoch = epoch
	return true
}

// fenceTopic is step 4. It repeats the scan until no new session has appeared before the fence record.
func (r *recovery) fenceTopic() bool {
	raised := map[int]bool{}
	for first := true; ; first = false {
		r.a.step("scan the topic")
		for r.topic.downUntil > r.now {
			if !r.wait("scan the topic") {
				return false
			}
		}
		var pids []int
		for _, c := range r.topic.log {
			if c.kind == "session" && c.at >= r.since-recorded {
				pids = append(pids, c.pid)
			}
		}
		for _, c := range r.s.data.claims {
			pids = append(pids, c.pid)
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return raised[pid] })
		if len(pids) == 0 && !first {
			r.fenced(r.n.shard, r.m.epoch, r.m.intact)
			return true
		}
		for _, pid := range pids {
			if !raised[pid] {
				raised[pid] = true
				r.topic.epochs[pid]++
			}
		}
		r.a.step("fence the topic")
		fence := record{kind: "fence", at: r.now, shard: r.n.shard, epoch: r.m.epoch, floor: r.m.intact}
		r.topic.log = append(r.topic.log, fence)
		r.note(r.a, "fence of the topic", r.n.shard, "epoch", r.m.epoch, "floor", r.m.intact, "raised", pids)
	}
}

// collect is the recoverer's part of step 3. It waits for the witnesses, and then reads all sources.
func (r *recovery) collect() bool {
	for {
		r.a.step("collect")
		d := r.s.data
		if r.gone() {
			return false
		}
		if r.ledger.downUntil > r.now || r.topic.downUntil > r.now {
			if !r.wait("collect") {
				return false
			}
			continue
		}
		e := restore.Evidence{
			Patience: restore.Patience, Waited: time.Duration(r.now-d.mend.asked) * time.Millisecond,
			Lines: r.m.direct || d.wrote > 0 && d.frozenAt-d.wrote < 10_000,
		}
		var lines []restore.Line
		r.plan.sent = nil
		for _, id := range sorted(d.lines, cmp.Compare[int]) {
			sent := d.sent[id] == r.m.attempt
			if sent {
				r.plan.sent = append(r.plan.sent, id)
			}
			if r.bug == "all sent from the loss before" {
				sent = d.sent[id] != ""
			}
			lines = append(lines, restore.Line{At: at(d.lines[id]), Sent: sent})
		}
		wrote := at(d.wrote)
		if r.bug == "lines that get old" {
			wrote = at(r.now)
		}
		e.Silent = restore.Silent(lines, wrote)
		r.plan.decision = restore.Decide(e)
		if r.bug == "opening before restoring" {
			r.plan.decision = restore.Exact
		}
		if v := r.plan.decision; v == restore.Exact || v == restore.Guarded {
			break
		}
		if !r.wait("collect") {
			return false
		}
	}
	r.plan.seen = r.s.data.seen
	r.plan.tops = map[int64]int64{}
	r.saw(r.plan.seen.epoch, r.plan.seen.seq)
	r.plan.through = map[string]int64{}
	if r.bug != "opening before restoring" {
		r.read()
	}
	return true
}

func (r *recovery) read() {
	d, shard := r.s.data, r.n.shard
	add := func(from restore.Source, g *hongbao.Grant) {
		if g.Shard != shard {
			return
		}
		if from != restore.Ledger && r.ledger.refunded[g.Campaign] {
			if paid, is := r.ledger.grants[keyOf(g)]; !is || idOf(&paid) != idOf(g) {
				r.report(g) // no money is left for a grant of a refunded campaign
				r.plan.owned = append(r.plan.owned, sight{g.Epoch, g.Seq})
				if g.Seq > r.m.intact {
					r.plan.through[g.Campaign] = max(r.plan.through[g.Campaign], g.Packet)
				}
			}
			return
		}
		r.plan.known = append(r.plan.known, restore.Known{Grant: *g, From: from})
		r.saw(g.Epoch, g.Seq)
	}
	for _, k := range sorted(r.ledger.grants, compareKeys) {
		if g := r.ledger.grants[k]; g.Seq > r.m.intact {
			add(restore.Ledger, &g)
		}
	}
	for _, g := range d.receipts() {
		if g.Seq > r.m.intact {
			add(restore.Redis, &g)
		}
	}
	for i := range r.topic.log {
		if c := &r.topic.log[i]; c.kind == "grant" && c.grant.Seq > r.m.intact {
			add(restore.Topic, &c.grant)
		}
	}
	for _, p := range d.proofs {
		if p.seen > 0 {
			r.saw(p.epoch, p.seen)
		} else {
			add(restore.Witness, &p.Grant)
		}
	}
	for _, o := range r.lostRows() {
		for epoch, seq := range o.tops {
			r.saw(epoch, seq)
		}
	}
}

// saw notes that a process has seen a seq of an epoch. It ignores a seq that a restore gave to a grant of an older
// epoch, because that restore has recorded what was seen.
func (r *recovery) saw(epoch, seq int64) {
	for _, o := range r.ledger.rows[r.n.shard] {
		if epoch == o.epoch && seq <= o.last {
			return
		}
	}
	r.plan.tops[epoch] = max(r.plan.tops[epoch], seq)
}

// spans returns, by epoch, the seqs after the intact seq that may have been granted. A seq of an epoch has an owner if
// the event belongs to that epoch, or to a later one whose opening put it back.
func (r *recovery) spans(events []sight) (spans []span) {
	rows := r.ledger.rows[r.n.shard]
	last := map[int64]int64{}
	for _, o := range rows {
		last[o.epoch] = o.last
	}
	for _, o := range rows {
		var owned []int64
		for _, e := range events {
			if e.epoch == o.epoch || e.epoch > o.epoch && e.seq <= last[e.epoch] {
				owned = append(owned, e.seq)
			}
		}
		slices.Sort(owned)
		s := span{Span: restore.Span{
			Seqs: stream.SeqRange{First: max(o.last, r.m.intact) + 1, Last: r.plan.tops[o.epoch]},
		}}
		if o.floor >= r.m.intact && o.attempt != "" {
			s.through = o.through
		}
		s.Holes = restore.Holes([]stream.SeqRange{s.Seqs}, owned)
		r.stats["holes"] += len(s.Holes)
		spans = append(spans, s)
	}
	return spans
}

func (r *recovery) lostRows() (rows []row) {
	for _, o := range r.ledger.rows[r.n.shard] {
		if o.floor >= r.m.intact && o.attempt != "" {
			rows = append(rows, o)
		}
	}
	return rows
}
