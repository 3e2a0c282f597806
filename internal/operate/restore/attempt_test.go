package restore_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// sight is an event that a process has seen: an epoch, and the shard's seq in it.
type sight struct{ epoch, seq int64 }

// after reports whether s is later than o. Seqs of different epochs are not compared: a server that has lost writes may
// have used the same seqs again. loose plants a bug.
func (s sight) after(o sight, loose bool) bool {
	return loose && s.seq > o.seq || !loose && cmp.Or(cmp.Compare(s.epoch, o.epoch), cmp.Compare(s.seq, o.seq)) > 0
}

func latest(a, b sight, loose bool) sight {
	if b.after(a, loose) {
		return b
	}
	return a
}

// The scripts of a restore. Each call names the attempt, its recoverer, the server, and the attempt's progress.

const lease = 3_000 // in ms: for how long no other recoverer may take an attempt over

// take begins an attempt, or takes over one whose recoverer has died. was, seq and epoch are the values that the caller
// has read.
func (d *data) take(was, now mend, seq, epoch, ms int64) bool {
	kept := d.mend.attempt != "" && d.mend.lease > ms && d.mend.token == now.token && d.mend.history == now.history
	if !d.frozen && d.initialized || d.mend != was || d.seq != seq || d.epoch != epoch || kept {
		return false
	}
	if d.mend.attempt != now.attempt {
		d.proofs = nil
	}
	now.lease = ms + lease
	d.freeze()
	d.initialized, d.mend = true, now
	d.noticed(ms)
	return true
}

// by identifies the caller of an attempt's script, and the time. loose plants a bug: any process that knows the attempt
// may write.
type by struct {
	mend
	ms    int64
	loose bool
}

// mine reports whether the caller is the attempt's recoverer. It counts the script, and extends the lease.
func (d *data) mine(b by) bool {
	if !d.frozen || d.mend.attempt != b.attempt ||
		!b.loose && (d.mend.turn != b.turn || d.mend.cursor != b.cursor || d.mend.token != b.token) {
		return false
	}
	d.mend.cursor++
	d.mend.lease = b.ms + lease
	return true
}

// ask stores the epoch of the fence in the attempt. Witnesses report once they see it.
func (d *data) ask(b by, epoch int64) bool {
	if !d.mine(b) {
		return false
	}
	if d.mend.epoch != epoch {
		d.mend.asked = b.ms
	}
	d.mend.epoch = epoch
	return true
}

func (d *data) renew(b by) bool {
	if !d.mine(b) {
		return false
	}
	d.mend.cursor--
	return true
}

// campaign restores what the ledger knows of a campaign: its generations, and whether it is refunded.
func (d *data) campaign(b by, id string, generations [][]int64, announced int, ended bool) bool {
	if !d.mine(b) {
		return false
	}
	c := d.camps[id]
	if c == nil {
		c = newCamp()
		d.camps[id] = c
	}
	for c.dealt < len(generations) {
		c.add(generations[c.dealt])
	}
	c.announced = max(c.announced, announced)
	if ended {
		c.state = "refunded"
	}
	return true
}

// restore takes packets out of the lists, in order. Each packet gets its grant, or is withheld.
func (d *data) restore(b by, id string, steps []restore.Step) bool {
	if !d.mine(b) {
		return false
	}
	c := d.camps[id]
	for _, s := range steps {
		var user string
		if s.Grant != nil {
			user = s.Grant.User + "/" + s.Grant.RequestID
		}
		d.drop(c, s.Packet, user)
		if s.Grant == nil {
			if !c.has(s.Packet) {
				c.withheld[s.Packet] = b.epoch
			}
			continue
		}
		g := s.Grant.Grant
		g.Epoch = b.epoch
		c.receipts[g.User] = append(slices.Clip(c.receipts[g.User]), g)
		d.log[g.Seq] = entry{Grant: g}
		if !s.Grant.Moved {
			d.seq = max(d.seq, g.Seq)
		}
	}
	return true
}

// drop removes a packet from the stock and from the receipts. It also removes it from the withheld packets if the
// packet has an owner.
func (d *data) drop(c *camp, packet int64, owner string) {
	is := func(p int64) bool { return p == packet }
	for i, s := range c.stock {
		c.stock[i] = slices.DeleteFunc(slices.Clone(s), is)
	}
	if owner != "" {
		delete(c.withheld, packet)
	}
	for user, held := range c.receipts {
		for i := range held {
			if g := held[i]; g.Packet == packet {
				c.receipts[user] = slices.Delete(slices.Clone(held), i, i+1)
				if e := d.log[g.Seq]; e.Campaign == g.Campaign && e.Packet == packet && e.close == nil {
					delete(d.log, g.Seq)
				}
				break
			}
		}
	}
}

// mark sets a sink's done bits. It first deletes the bits above the intact seq, because they may belong to other
// grants.
func (d *data) mark(b by, sink int, seqs []int64) bool {
	if !d.mine(b) {
		return false
	}
	maps.DeleteFunc(d.bits[sink], func(seq int64, _ bool) bool { return seq > b.intact })
	for _, seq := range seqs {
		d.bits[sink][seq] = true
		if sink == toTopic {
			delete(d.claims, seq)
		}
	}
	return true
}

// jump raises the seq above all known seqs. Seqs without an entry become skipped.
func (d *data) jump(b by, last int64, closes []string, revisions map[string]int64) bool {
	if !d.mine(b) {
		return false
	}
	var seqs []int64
	for seq, e := range d.log {
		if seq > b.intact && e.close != nil && e.Epoch <= d.epoch {
			delete(d.log, seq) // jump closes the campaign again below
		} else if seq > b.intact {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	d.skips = slices.DeleteFunc(slices.Clone(d.skips), func(r stream.SeqRange) bool { return r.First > b.intact })
	d.skips = append(d.skips, restore.Holes([]stream.SeqRange{{First: b.intact + 1, Last: last}}, seqs)...)
	d.seq, d.epoch, d.settled = last, b.epoch, min(d.settled, b.intact)
	d.fence += 1 << 20
	maps.DeleteFunc(d.claims, func(seq int64, _ claim) bool { return seq > b.intact }) // mark has checked the topic
	for _, id := range closes {
		d.closeNow(b.ms, id)
	}
	for id, r := range revisions {
		if c := d.camps[id]; c != nil {
			c.revision = r
		}
	}
	return true
}

func (d *data) revise(id string, revision int64) {
	if c := d.camps[id]; c != nil {
		c.revision = max(c.revision, revision)
	}
}

// open ends the attempt, and opens the shard.
func (d *data) open(b by, seen sight) bool {
	if !d.mine(b) || d.seen.after(seen, d.loose) {
		return false
	}
	d.late, d.proofs = append(slices.Clip(d.late), d.proofs...), nil
	d.frozen, d.frozenAt, d.seen, d.opened, d.history, d.mend = false, 0, sight{}, b.token, b.history, mend{}
	return true
}

// hole grants a withheld packet to a user whose grant a witness reports late.
func (d *data) hole(token string, epoch int64, g hongbao.Grant, limit, ms int64, bug string) string {
	if no := d.guard(token, epoch, sight{}); no != "" {
		return no
	}
	c := d.camps[g.Campaign]
	held := c.receipts[g.User]
	same := slices.ContainsFunc(held, func(h hongbao.Grant) bool { return h.RequestID == g.RequestID })
	if same || c.state != "open" || int64(len(held)) >= limit || !c.has(g.Packet) {
		return "changed"
	}
	delete(c.withheld, g.Packet)
	if bug != "an old filter" {
		c.revision++
	}
	if bug == "late evidence under its old seq" {
		c.receipts[g.User] = append(slices.Clip(held), g)
		d.log[g.Seq] = entry{Grant: g}
		return ""
	}
	d.grant(g.Shard, grab{now: ms, campaign: g.Campaign, user: g.User, request: g.RequestID}, g.Packet)
	return ""
}

// The scripts of a publisher's claims.

// claim claims a grant that is not published yet, or takes over the claim of a publisher that has stopped.
func (d *data) claim(token string, ms int64, pid, pidEpoch, number int) (c claim, taken bool, epoch int64) {
	if d.guard(token, 0, sight{}) != "" {
		return c, false, 0
	}
	var seqs []int64
	for seq, e := range d.log {
		if e.close == nil && !d.bits[toTopic][seq] {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		c, ok := d.claims[seq]
		if ok && c.at+lease > ms {
			continue
		}
		d.fence++
		if !ok {
			c = claim{pid: pid, pidEpoch: pidEpoch, number: number, epoch: d.epoch, Grant: d.log[seq].Grant}
		}
		c.fence, c.at = d.fence, ms
		d.claims[seq] = c
		return c, ok, d.epoch
	}
	return c, false, d.epoch
}

// settle ends a claim. Its grant is then done, or can be claimed again.
func (d *data) settle(token string, epoch int64, c claim, done bool) string {
	if no := d.guard(token, epoch, sight{epoch, c.Seq}); no != "" {
		return no
	}
	if d.claims[c.Seq].fence != c.fence {
		return "fenced"
	}
	delete(d.claims, c.Seq)
	if done {
		d.bits[toTopic][c.Seq] = true
	}
	return ""
}
