package restore_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// world is a deployment: shards with a server each, a ledger, a topic, and processes that take turns. The seed
// determines the order of the turns. bug names the planted bug, and is empty if there is none.
type world struct {
	rng       *rand.Rand
	bug       string
	now       int64
	names     int
	gentle    bool
	margin    time.Duration // margin of a guarded restore
	jumps     int64         // how many seqs an opening skips above all known ones: few, so that events are lost above them
	calm      bool          // whether all faults are over, so that the history can end
	nodes     []*node
	specs     []*spec
	ledger    *ledger
	topic     *topic
	producers []*producer
	agents    []*agent
	requests  []*request
	filters   map[string]filter
	judge
	stats  map[string]int
	err    error
	traced bool
	trace  []string
}

type spec struct {
	id          string
	places      []int // the campaign's shards
	limit       int
	generations []int64 // number of packets in each
	topUpAt     int64   // when the second generation is added
	closeAt     int64
}

func (s *spec) dealt(place, generation int) (packets []int64) {
	first := int64(1)
	for _, n := range s.generations[:generation-1] {
		first += n
	}
	for p := first; p < first+s.generations[generation-1]; p++ {
		if int(p-1)%len(s.places) == place {
			packets = append(packets, p)
		}
	}
	return packets
}

func (s *spec) packets() (n int64) {
	for _, packets := range s.generations {
		n += packets
	}
	return n
}

func (s *spec) place(shard int) int {
	for j, i := range s.places {
		if i == shard {
			return j
		}
	}
	return -1
}

type request struct {
	spec     *spec
	user, id string
	order    []int
	wins     []*win
}

// agent is a process, or a part of one, that is suspended before its next step.
type agent struct {
	w      *world
	name   string
	body   func(*agent)
	asleep int64
	pinned map[int]bool // shards whose old primary the agent uses while it runs
	where  string
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
}

var errStopped = errors.New("its process has died")

func (w *world) spawn(name string, body func(*agent)) *agent {
	a := &agent{w: w, name: name, body: body, pinned: map[int]bool{}}
	a.begin()
	w.agents = append(w.agents, a)
	return a
}

func (a *agent) begin() {
	a.where = ""
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if r := recover(); r != nil && r != any(errStopped) {
				a.w.fail("%s, %s: %v\n%s", a.name, a.where, r, debug.Stack())
			}
		}()
		a.body(a)
	})
}

// step suspends the agent until its next turn. where names what the agent will do then.
func (a *agent) step(where string) {
	a.where = where
	if !a.yield(struct{}{}) {
		panic(errStopped)
	}
}

func (a *agent) wait(ms int64) {
	a.asleep = a.w.now + ms
	a.step("idle")
}

// note adds an event to the trace if the world is traced.
func (w *world) note(a *agent, args ...any) {
	if w.traced {
		who := ""
		if a != nil {
			who = fmt.Sprintf("%s %p ", a.name, a)
		}
		w.trace = append(w.trace, fmt.Sprintf("%6d ms %s%+v", w.now, who, args))
	}
}

// loose reports whether the planted bug compares seqs without their epochs.
func (w *world) loose() bool { return w.bug == "seqs compared without their epochs" }

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// newWorld returns the world of a seed. In a gentle world there is one loss at a time, and most processes survive.
func newWorld(seed uint64, bug string, gentle bool, stats map[string]int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 2)), bug: bug, stats: stats, filters: map[string]filter{},
		topic: &topic{epochs: map[int]int{}},
	}
	w.judge.init()
	w.gentle = gentle
	w.margin = []time.Duration{time.Millisecond, 3 * time.Second}[w.rng.IntN(2)]
	shards := 1 + w.rng.IntN(2)
	w.jumps = 1 + int64(seed%8)
	w.ledger = newLedger(shards)
	for i := range shards {
		n := newNode(w, i)
		w.nodes = append(w.nodes, n)
		w.ledger.rows[i] = []row{{epoch: 1, token: n.up.token}}
	}
	for i := range 2 + w.rng.IntN(2) {
		w.addSpec(i)
	}
	for i, n := range w.nodes {
		w.initialize(n.up.data, i, n.up.token, n.up.history)
		n.resync()
	}
	for range 3 {
		w.newProducer()
	}
	for range 2 {
		w.spawn("settler", w.settler)
		w.spawn("publisher", w.publisher)
		for shard := range w.nodes {
			w.spawn("recoverer", func(a *agent) { w.recoverer(a, shard) })
		}
	}
	w.spawn("trimmer", w.trimmer)
	w.spawn("late", w.lateGrants)
	w.spawn("filter", w.filterBuilder)
	for _, s := range w.specs {
		w.spawn("sponsor", func(a *agent) { w.sponsor(a, s) })
	}
	return w
}

func (w *world) addSpec(i int) {
	s := &spec{id: fmt.Sprint("c", i), limit: 1 + w.rng.IntN(2), generations: []int64{int64(8 + w.rng.IntN(40))}}
	switch {
	case i == 2, i == 1 && w.rng.IntN(5) == 0:
		for j := range w.nodes {
			s.places = append(s.places, j)
		}
	default:
		s.places = []int{0}
	}
	s.closeAt = 15_000 + w.rng.Int64N(60_000)
	if w.rng.IntN(2) == 0 {
		s.generations = append(s.generations, int64(4+w.rng.IntN(20)))
		s.topUpAt = 3_000 + w.rng.Int64N(20_000)
	}
	w.ledger.announced[s.id], w.ledger.ready[s.id] = 1, 1
	w.specs = append(w.specs, s)
}

func (w *world) initialize(d *data, shard int, token, history string) {
	d.initialized, d.epoch, d.opened, d.history = true, 1, token, history
	for _, s := range w.specs {
		if j := s.place(shard); j >= 0 {
			c := newCamp()
			c.add(s.dealt(j, 1))
			d.camps[s.id] = c
		}
	}
}

// someRequest returns a new grab, or one to repeat.
func (w *world) someRequest() *request {
	if len(w.requests) > 0 && (w.rng.IntN(2) == 0 || w.calm) {
		return w.requests[w.rng.IntN(len(w.requests))]
	}
	s := w.specs[w.rng.IntN(len(w.specs))]
	q := &request{spec: s, user: fmt.Sprint("u", w.rng.IntN(60)), id: fmt.Sprint("r", len(w.requests))}
	q.order = rand.New(rand.NewPCG(uint64(len(q.user))*31+uint64(q.user[len(q.user)-1]), 7)).Perm(len(s.places))
	w.requests = append(w.requests, q)
	return q
}
