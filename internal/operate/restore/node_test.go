package restore_test

import "fmt"

// server is one server of Redis: its run, its history of writes, and the history that it followed before.
type server struct {
	token, history, before string
	data                   *data
	promoted               bool // the server did not start from a file
}

// node is the primary of a shard with its replica and its append-only file. Sometimes it also has an older file, and a
// primary that was cut off and keeps running.
type node struct {
	w        *world
	shard    int
	up, cut  *server
	changed  bool // since the last check
	cutUntil int64
	writes   []func(*data)
	base     int      // writes that were dropped from the front
	copies   [2]*data // replica and append-only file
	applied  [2]int
	old      *data
	oldAt    int64
	stalls   [2]bool // copies that get no writes
	doomed   int64   // when the primary fails; 0 for no fault
	flips    int     // promotions to the replica and back that no one has noticed yet
}

func (n *node) newServer(d *data, before string, promoted bool) *server {
	n.w.names++
	return &server{fmt.Sprint("run", n.w.names), fmt.Sprint("history", n.w.names), before, d, promoted}
}

func newNode(w *world, shard int) *node {
	n := &node{w: w, shard: shard}
	n.up = n.newServer(newData(), "", true)
	return n
}

// resync makes new copies of the primary.
func (n *node) resync() {
	n.writes, n.base, n.applied = nil, 0, [2]int{}
	n.copies = [2]*data{n.up.data.clone(), n.up.data.clone()}
}

// call runs a script on a server. The writes of the primary are replicated to its copies later.
func call[T any](n *node, s *server, f func(*data) T) T {
	n.changed = n.changed || s == n.up
	out := f(s.data)
	if s == n.up {
		n.writes = append(n.writes, func(d *data) { f(d) })
	}
	return out
}

func do(n *node, s *server, f func(*data)) {
	call(n, s, func(d *data) int { f(d); return 0 })
}

// replicate applies some more writes to a copy.
func (n *node) replicate(to, count int) {
	for count > 0 && n.applied[to] < n.base+len(n.writes) {
		n.writes[n.applied[to]-n.base](n.copies[to])
		n.applied[to]++
		count--
	}
	if low := min(n.applied[0], n.applied[1]); low > n.base+200 {
		n.writes = append([]func(*data){}, n.writes[low-n.base:]...)
		n.base = low
	}
}

// written returns the number of the last write; confirmed reports whether every copy has a write.
func (n *node) written() int { return n.base + len(n.writes) }

func (n *node) confirmed(s *server, write int) bool {
	return s == n.up && n.applied[0] >= write && n.applied[1] >= write
}

// of returns the server that an agent uses.
func (n *node) of(a *agent) *server {
	if n.cut != nil && a.pinned[n.shard] {
		return n.cut
	}
	return n.up
}

// failover promotes the replica.
func (n *node) failover() {
	n.count("failovers", n.copies[0])
	n.up = n.newServer(n.copies[0], n.up.history, true)
	n.moved()
}

// leave promotes the replica while the old primary keeps running for the agents that are pinned to it.
func (n *node) leave() {
	n.cut, n.cutUntil = n.up, n.w.now+2_000+n.w.rng.Int64N(10_000)
	n.w.stats["primaries left behind"]++
	n.failover()
}

// flip promotes the replica and then the old primary again, which has lost what the replica lacked.
func (n *node) flip() {
	n.count("demoted and promoted", n.copies[0])
	n.up.data, n.up.before = n.copies[0], n.up.history
	n.w.names++
	n.up.history = fmt.Sprint("history", n.w.names)
	n.flips++
	n.moved()
}

// restart starts the primary from its append-only file, which lacks the end.
func (n *node) restart() {
	n.count("restarts", n.copies[1])
	n.up = n.newServer(n.copies[1], "", false)
	n.moved()
}

// older starts the primary from an older file.
func (n *node) older() {
	n.count("older files", n.old)
	n.up = n.newServer(n.old, "", false)
	n.old = nil
	n.moved()
}

// flush is FLUSHALL: neither the run nor the history has changed.
func (n *node) flush() {
	n.count("flushes", newData())
	n.up.data = newData()
	n.moved()
}

func (n *node) moved() {
	n.resync()
	n.changed = true
}

func (n *node) count(fault string, to *data) {
	n.w.note(nil, fault, n.shard, n.up.token, "seq", n.up.data.seq, "to", to.seq, n.up.data.frozen)
	n.w.stats[fault]++
	if n.up.data.mend.attempt != "" {
		n.w.stats["losses during a restore"]++
	}
	for seq, e := range n.up.data.log {
		if _, has := to.log[seq]; !has && e.close == nil {
			n.w.stats[fault+" that lost grants"]++
			return
		}
	}
}
