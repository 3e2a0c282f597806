package restore_test

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seeds = flag.Uint64("seeds", 300, "histories of the model")

// run lets the agents take steps, one at a time, until all campaigns are refunded.
func (w *world) run() error {
	defer w.stopAll()
	active := 20_000 + w.rng.Int64N(40_000)
	for w.err == nil && w.now < active {
		w.injectFault()
		w.turn()
	}
	return w.finish()
}

func (w *world) stopAll() {
	for _, a := range w.agents {
		a.stop()
	}
}

// finish injects no more faults, and lets the history end.
func (w *world) finish() error {
	active := w.now
	w.settleDown()
	for quiet := 0; w.err == nil && quiet < 200; w.turn() {
		if quiet++; !w.quiet() {
			quiet = 0
		}
		if w.now > active+240_000 {
			w.fail("the history does not end: %s", w.unfinished())
		}
	}
	if w.err == nil {
		w.ended()
	}
	return w.err
}

func (w *world) turn() {
	w.now += 5 + w.rng.Int64N(15)
	for _, n := range w.nodes {
		for to := range n.copies {
			if w.rng.IntN(3) == 0 && !n.stalls[to] || w.calm {
				n.replicate(to, 1+w.rng.IntN(6))
			}
		}
		if n.cut != nil && n.cutUntil < w.now {
			n.cut = nil
		}
	}
	var ready []*agent
	for _, a := range w.agents {
		if a.asleep <= w.now {
			ready = append(ready, a)
		}
	}
	if len(ready) > 0 {
		ready[w.rng.IntN(len(ready))].next()
		w.check()
	}
}

func (w *world) settleDown() {
	w.calm = true
	for _, n := range w.nodes {
		n.cut = nil
	}
	for _, n := range w.nodes {
		n.stalls = [2]bool{}
	}
	w.ledger.downUntil, w.topic.downUntil = 0, 0
	for _, a := range w.agents {
		a.asleep = min(a.asleep, w.now+3_000)
	}
	for _, s := range w.specs {
		s.closeAt = min(s.closeAt, w.now+20_000)
	}
}

func (w *world) quiet() bool { return w.unfinished() == "" }

func (w *world) unfinished() string {
	for _, s := range w.specs {
		if !w.ledger.refunded[s.id] {
			return s.id + " is not refunded"
		}
	}
	for _, n := range w.nodes {
		d := n.up.data
		if d.frozen || len(d.late) > 0 || len(d.claims) > 0 {
			return "a shard is frozen, or has late grants or claims"
		}
		for seq := range d.log {
			if !d.bits[toLedger][seq] || !d.bits[toTopic][seq] {
				return fmt.Sprint("shard ", n.shard, " has seq ", seq, " to push")
			}
		}
		for _, p := range w.producers {
			if p.shards[n.shard].late != d.epoch {
				return "a witness has not reported"
			}
		}
	}
	return ""
}

func (w *world) injectFault() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.old == nil && w.rng.IntN(1000) == 0 {
		n.old, n.oldAt = n.up.data.clone(), w.now
	}
	if n.doomed != 0 && n.doomed < w.now {
		n.doomed = 0
		w.fault(n)
		n.stalls = [2]bool{}
	}
	switch dice := w.rng.IntN(20_000); {
	case dice < 40 && n.doomed == 0 && !(w.gentle && n.up.data.frozen):
		n.doomed = w.now + w.rng.Int64N(4_000)
		n.stalls = [2]bool{w.rng.IntN(4) > 0, w.rng.IntN(4) > 0}
		if len(w.producers) < 4 { // a new producer starts before the fault
			w.newProducer()
		}
	case dice < 60:
		a := w.agents[w.rng.IntN(len(w.agents))]
		a.asleep = w.now + int64(1_000+w.rng.IntN(20_000))
	case dice < 70:
		w.stop(w.producers[w.rng.IntN(len(w.producers))])
	case dice < 80:
		w.kill(w.agents[w.rng.IntN(len(w.agents))])
	case dice < 84:
		w.ledger.downUntil = w.now + int64(500+w.rng.IntN(8_000))
	case dice < 88:
		w.topic.downUntil = w.now + int64(500+w.rng.IntN(8_000))
	case dice < 350 && !w.gentle:
		w.inRestore(n)
	}
}

func (w *world) stop(p *producer) {
	until := w.now + int64(1_000+w.rng.IntN(20_000))
	for _, a := range p.parts {
		a.asleep = until
	}
}

// inRestore kills or stops a recoverer that is working, or lets its primary fail.
func (w *world) inRestore(n *node) {
	for _, a := range w.agents {
		if a.name == "recoverer" && a.where != "idle" && a.where != "" {
			rare := slices.Contains([]string{"restore", "mark", "revise", "jump", "open"}, a.where)
			switch w.rng.IntN(map[bool]int{true: 6, false: 14}[rare]) {
			case 0, 1:
				w.kill(a)
			case 2:
				a.asleep = w.now + int64(2_000+w.rng.IntN(8_000))
			case 3, 4:
				w.fault(n)
			}
			return
		}
	}
}

// fault lets a primary fail, and some processes stop or die with it.
func (w *world) fault(n *node) {
	for _, a := range w.agents { // these continue after the fault
		if slices.Contains([]string{"insert", "commit", "claimed", "send", "reply"}, a.where) &&
			(w.rng.IntN(3) == 0 || w.bug == "a sleeping commit" && a.name == "settler") {
			a.asleep = w.now + int64(3_000+w.rng.IntN(20_000))
			w.stats["stopped before a loss: "+a.where]++
		}
	}
	deaths := []int{0, 0, 1, 1, len(w.producers) - w.rng.IntN(2), 0, 0, 0}
	stopped, kinds := w.rng.IntN(2) == 0, 11
	if w.gentle {
		deaths, stopped, kinds = deaths[:3], w.rng.IntN(5) == 0, 3
	}
	for range deaths[w.rng.IntN(len(deaths))] { // the newest producers first
		w.producers[len(w.producers)-1].die()
	}
	if stopped {
		w.stop(w.producers[w.rng.IntN(len(w.producers))])
	}
	switch w.rng.IntN(kinds) {
	case 0:
		n.failover()
	case 1, 5, 6:
		n.flip()
		if w.rng.IntN(2) == 0 {
			n.doomed = w.now + w.rng.Int64N(1_000)
		}
	case 2:
		n.restart()
	case 3, 4:
		w.leaveBehind(n)
	case 7, 8:
		n.failover()
	case 9:
		if n.old != nil && w.now-n.oldAt > 12_000 {
			n.older()
		}
	case 10:
		if w.rng.IntN(2) == 0 {
			n.flush()
		}
	}
}

// leaveBehind promotes the replica while the old primary keeps running. Some processes still use the old primary.
func (w *world) leaveBehind(n *node) {
	n.leave()
	for _, a := range w.agents {
		often := map[bool]int{true: 2, false: 6}[a.name == "settler" || a.name == "publisher"]
		a.pinned[n.shard] = w.rng.IntN(often) == 0
	}
	for _, p := range w.producers {
		beside := w.rng.IntN(2) == 0
		for _, a := range p.parts {
			a.pinned[n.shard] = beside
		}
	}
}

// kill ends a process and starts it again. A killed producer loses all its parts and its memory.
func (w *world) kill(a *agent) {
	for _, p := range w.producers {
		if slices.Contains(p.parts, a) {
			p.die()
			return
		}
	}
	w.stats[fmt.Sprintf("%s killed: %s", a.name, a.where)]++
	for _, locks := range w.ledger.locks {
		delete(locks, a)
	}
	a.stop()
	a.begin()
}

// The protocol keeps its guarantees in every random history, and the histories contain each kind of fault often enough.
func TestModel(t *testing.T) {
	t.Parallel()
	stats := map[string]int{}
	for seed := range *seeds {
		if err := newWorld(seed, "", seed%3 == 0, stats).run(); err != nil {
			w := newWorld(seed, "", seed%3 == 0, map[string]int{})
			w.traced = true
			require.Equal(t, err, w.run(), "a seed repeats its history")
			t.Fatalf("%s\nseed %d: %v", strings.Join(w.trace, "\n"), seed, err)
		}
	}
	for _, s := range sorted(stats, cmp.Compare[string]) {
		t.Logf("%7d %s", stats[s], s)
	}
	for fault, least := range faults {
		assert.GreaterOrEqual(t, stats[fault]*300, least*int(*seeds), fault)
	}
}

// faults has the events that the histories must contain, with the least number of each in 300 histories.
var faults = map[string]int{
	"failovers that lost grants": 40, "primaries left behind": 150, "demoted and promoted that lost grants": 30,
	"restarts that lost grants": 8, "older files that lost grants": 10, "flushes that lost grants": 30,
	"losses during a restore": 400, "attempts that another recoverer continued": 150, "openings, exact": 30,
	"openings, guarded": 200, "holes": 100, "reported grants that became holes": 150, "packets of margins": 300,
	"reported grants beyond the margin": 5, "grants of a second primary": 5, "grants that got a new seq": 1,
	"grants restored from Redis": 500, "grants restored from the ledger": 5000,
	"grants restored from the topic": 100, "grants restored from witnesses": 400, "late grants": 8,
	"late grants for a person": 50, "losers by a filter": 1000, "producers killed": 500,
	"stopped before a loss: commit": 30, "stopped before a loss: claimed": 40, "stopped before a loss: reply": 400,
	"recoverer killed: freeze": 30, "recoverer killed: fence the ledger": 10, "recoverer killed: ask the witnesses": 5,
	"recoverer killed: scan the topic": 20, "recoverer killed: fence the topic": 5, "recoverer killed: collect": 200,
	"recoverer killed: campaigns": 3, "recoverer killed: record": 3, "recoverer killed: restore": 10,
	"recoverer killed: mark": 3, "recoverer killed: revise": 1, "recoverer killed: jump": 2,
	"recoverer killed: announce the opening": 1, "recoverer killed: open": 1,
}

// bugs has the planted bugs. Each of them breaks one rule. The key says whether the bug is planted in a gentle world.
var bugs = map[bool][]string{
	false: {
		"opening before restoring", "seqs compared without their epochs", "done bits for the suffix only",
		"late evidence ignored",
		"late evidence under its old seq", "an old claim sent again", "founding after FLUSHALL", "a sleeping commit",
		"a second recoverer with an older view", "after an unfinished restore, meta.seq is taken as the intact seq",
		"two campaigns sharing a hole", "a session from after the fence", "lines that get old", "an old filter",
	},
	true: {
		"a remembered packet dealt again", "all sent from the loss before", "an answer after all was sent",
		"two promotions", "a line that one server has", "a claim after a promotion",
		"an idle producer id",
	},
}

// With each planted bug, the model fails in one of 200 histories.
func TestModelCatches(t *testing.T) {
	t.Parallel()
	for gentle, list := range bugs {
		for _, bug := range list {
			t.Run(bug, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(200) {
					if err := newWorld(seed, bug, gentle, map[string]int{}).run(); err != nil {
						t.Logf("seed %d: %v", seed, err)
						return
					}
				}
				t.Error("200 histories did not show the bug")
			})
		}
	}
}
