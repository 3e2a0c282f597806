package restore_test

import (
	"maps"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var t0 = time.UnixMilli(1_800_000_000_000)

func at(ms int64) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

func since(t time.Time) int64 { return t.Sub(t0).Milliseconds() }

// data is the data of one shard on one Redis server. Its methods are the scripts. Each script is atomic and depends
// only on the data and its arguments, so that a replica can run it again.
type data struct {
	initialized           bool
	seq, epoch, settled   int64
	seen                  sight // the latest event that a process has reported since the freeze
	frozen                bool
	opened, history       string
	last, wrote, frozenAt int64 // in ms: last write, last write before the freeze, when the freeze was noticed
	log                   map[int64]entry
	trimmed, trimmedAt    int64
	skips                 []stream.SeqRange
	camps                 map[string]*camp
	bits                  [2]map[int64]bool // done bits, by sink
	claims                map[int64]claim
	fence                 int64
	lines                 map[int]int64
	mend                  mend
	proofs, late          []proof
	sent                  map[int]string
	loose                 bool // plants a bug: seqs are compared without their epochs
}

const (
	toLedger = iota
	toTopic
)

// entry is an entry of the stream: a grant, or a close.
type entry struct {
	hongbao.Grant
	close *closing
}

type closing struct{ granted, left, withheld int }

type camp struct {
	state            string
	revision         int64
	closedAt         int64
	announced, dealt int
	stock            [][]int64       // by generation
	withheld         map[int64]int64 // by packet: the epoch of the restore that withheld it
	receipts         map[string][]hongbao.Grant
	loaded           int
}

// claim is a publisher's claim for a grant.
type claim struct {
	pid, number  int
	pidEpoch     int
	fence, epoch int64
	at           int64
	hongbao.Grant
}

// mend is the field mend of meta: the attempt that restores the shard. Scripts of other attempts change nothing.
type mend struct {
	attempt        string
	turn, cursor   int
	token, history string
	intact, epoch  int64
	before         int64 // epoch in which the shard was open before
	lease          int64
	asked          int64
	direct         bool // only one promotion since the opening
}

// proof is an element of the evidence: a grant, or the highest seq that a witness has seen in an epoch.
type proof struct {
	hongbao.Grant
	epoch int64 // epoch of seen
	seen  int64
}

func newCamp() *camp {
	return &camp{
		state: "open", revision: 1, announced: 1, receipts: map[string][]hongbao.Grant{}, withheld: map[int64]int64{},
	}
}

func (c *camp) has(withheld int64) bool {
	_, is := c.withheld[withheld]
	return is
}

func newData() *data {
	return &data{
		log: map[int64]entry{}, camps: map[string]*camp{}, bits: [2]map[int64]bool{{}, {}}, claims: map[int64]claim{},
		lines: map[int]int64{}, sent: map[int]string{},
	}
}

func (d *data) clone() *data {
	c := *d
	c.log, c.claims, c.lines, c.sent = maps.Clone(d.log), maps.Clone(d.claims), maps.Clone(d.lines), maps.Clone(d.sent)
	c.bits = [2]map[int64]bool{maps.Clone(d.bits[0]), maps.Clone(d.bits[1])}
	c.skips, c.proofs, c.late = slices.Clone(d.skips), slices.Clone(d.proofs), slices.Clone(d.late)
	c.camps = map[string]*camp{}
	for id, old := range d.camps {
		n := *old
		n.stock, n.withheld, n.receipts = nil, maps.Clone(old.withheld), map[string][]hongbao.Grant{}
		for _, s := range old.stock {
			n.stock = append(n.stock, slices.Clone(s))
		}
		for user, held := range old.receipts {
			n.receipts[user] = slices.Clone(held)
		}
		c.camps[id] = &n
	}
	return &c
}

func (d *data) freeze() {
	if !d.frozen {
		d.frozen, d.wrote = true, d.last
	}
}

func (d *data) noticed(ms int64) {
	if d.frozen && d.frozenAt == 0 {
		d.frozenAt = ms
	}
}

func (d *data) at() sight { return sight{d.epoch, d.seq} }

// guard runs before each script. It returns why the script must not run; empty if it may. epoch is the epoch of the
// caller's batch, 0 if it has none.
func (d *data) guard(token string, epoch int64, seen sight) string {
	if !d.initialized {
		return "frozen"
	}
	if seen.after(d.at(), d.loose) || d.opened != token {
		d.freeze()
		d.seen = latest(d.seen, seen, d.loose)
	}
	if d.frozen {
		return "frozen"
	}
	if epoch != 0 && epoch != d.epoch {
		return "epoch"
	}
	return ""
}

type grab struct {
	token         string
	now           int64
	seen          sight
	campaign      string
	user, request string
	generation    int
	limit, held   int
}

type reply struct {
	outcome       string
	grant         hongbao.Grant
	epoch, seq    int64
	revision      int64
	announced     int
	receiptsCount int
}

func (d *data) grab(shard int, g grab) (r reply) {
	if r.outcome = d.guard(g.token, 0, g.seen); r.outcome != "" {
		return r
	}
	c := d.camps[g.campaign]
	r = reply{epoch: d.epoch, seq: d.seq, outcome: "frozen"}
	if c == nil || c.state == "frozen" {
		return r
	}
	mine := c.receipts[g.user]
	r.revision, r.announced, r.receiptsCount = c.revision, c.announced, len(mine)
	for i := range mine {
		if mine[i].RequestID == g.request {
			r.outcome, r.grant = "granted", mine[i]
			return r
		}
	}
	switch {
	case c.state != "open":
		r.outcome = "ended"
	case len(mine)+g.held >= g.limit:
		r.outcome = "limit"
	case g.generation > c.dealt:
		r.outcome = "refilling"
	case len(c.stock[g.generation-1]) == 0:
		r.outcome = "empty"
	default:
		packet := c.stock[g.generation-1][0]
		c.stock[g.generation-1] = c.stock[g.generation-1][1:]
		r.outcome, r.grant = "granted", d.grant(shard, g, packet)
		r.seq = d.seq
	}
	return r
}

func (d *data) grant(shard int, g grab, packet int64) hongbao.Grant {
	d.seq++
	got := hongbao.Grant{
		Shard: shard, Seq: d.seq, Epoch: d.epoch, Campaign: g.campaign, Packet: packet, User: g.user, RequestID: g.request,
		Time: at(g.now),
	}
	d.log[d.seq], d.last = entry{Grant: got}, g.now
	c := d.camps[g.campaign]
	c.receipts[g.user] = append(slices.Clip(c.receipts[g.user]), got)
	return got
}

func (c *camp) granted() (n int) {
	for _, held := range c.receipts {
		n += len(held)
	}
	return n
}

func (c *camp) left() (n int) {
	for _, s := range c.stock {
		n += len(s)
	}
	return n
}

func (d *data) close(token string, now int64, id string) string {
	if no := d.guard(token, 0, sight{}); no != "" {
		return no
	}
	c := d.camps[id]
	if c != nil && c.state == "open" {
		d.closeNow(now, id)
	}
	return ""
}

func (d *data) closeNow(now int64, id string) {
	c := d.camps[id]
	c.state = "closed"
	d.seq++
	c.closedAt = d.seq
	d.log[d.seq] = entry{
		Grant: hongbao.Grant{Seq: d.seq, Epoch: d.epoch, Campaign: id, Time: at(now)},
		close: &closing{c.granted(), c.left(), len(c.withheld)},
	}
	d.last = now
}

func (d *data) announce(token, id string, generation int) string {
	if no := d.guard(token, 0, sight{}); no != "" {
		return no
	}
	c := d.camps[id]
	if c == nil || c.state != "open" {
		return "ended"
	}
	if c.announced < generation {
		c.announced = generation
		c.revision++
	}
	return ""
}

func (d *data) deal(token, id string, generation int, packets []int64) string {
	if no := d.guard(token, 0, sight{}); no != "" {
		return no
	}
	if c := d.camps[id]; c != nil && c.dealt < generation {
		c.add(packets)
	}
	return ""
}

func (c *camp) add(packets []int64) {
	c.stock = append(c.stock, slices.Clone(packets))
	c.dealt++
	c.loaded += len(packets)
}

// done sets a sink's done bits, like the scripts complete and ack.
func (d *data) done(token string, epoch int64, sink int, seqs []int64) string {
	if no := d.guard(token, epoch, sight{epoch, slices.Max(seqs)}); no != "" {
		return no
	}
	for _, seq := range seqs {
		d.bits[sink][seq] = true
	}
	return ""
}

func (d *data) skipped(seq int64) int64 {
	for _, r := range d.skips {
		if r.Has(seq) {
			return r.Last
		}
	}
	return 0
}

// trim raises settled over all events that both sinks have finished. It removes settled entries that are older than ten
// seconds.
func (d *data) trim(token string, now int64) {
	if d.guard(token, 0, sight{}) != "" {
		return
	}
	for d.settled < d.seq {
		next := d.settled + 1
		if last := d.skipped(next); last > 0 {
			d.settled = last
		} else if d.bits[toLedger][next] && d.bits[toTopic][next] {
			d.settled = next
		} else {
			break
		}
	}
	for seq, e := range d.log {
		if seq <= d.settled && since(e.Time) < now-10_000 {
			delete(d.log, seq)
			d.trimmed, d.trimmedAt = max(d.trimmed, seq), max(d.trimmedAt, since(e.Time))
		}
	}
}

// behind freezes an open shard if the ledger has a later epoch.
func (d *data) behind(token string, epoch int64) {
	if d.guard(token, 0, sight{}) == "" && d.epoch < epoch {
		d.freeze()
	}
}

// view is the state of a shard that a producer's watch reads.
type view struct {
	frozen              bool
	seq, epoch, settled int64
	mend                mend
}

// line writes the witness line of a process. It freezes the shard if the server or its history has changed since the
// opening, or if the process has seen a later event.
func (d *data) line(id int, now int64, token, history string, seen sight) view {
	if d.initialized && (d.opened != token || d.history != history || seen.after(d.at(), d.loose)) {
		d.freeze()
	}
	if d.frozen || !d.initialized {
		d.seen = latest(d.seen, seen, d.loose)
	} else {
		d.last = max(d.last, now)
	}
	d.lines[id] = now
	d.noticed(now)
	return view{d.frozen || !d.initialized, d.seq, d.epoch, d.settled, d.mend}
}

// evidence appends evidence from a witness. sent reports whether the witness has sent everything with it.
func (d *data) evidence(id int, attempt string, proofs []proof, sent bool) bool {
	if d.mend.attempt != attempt {
		return false
	}
	d.proofs = append(d.proofs, proofs...)
	if sent {
		d.sent[id] = attempt
	}
	return true
}

func (d *data) lateEvidence(token string, proofs []proof) bool {
	if d.guard(token, 0, sight{}) != "" {
		return false
	}
	d.late = append(d.late, proofs...)
	return true
}
