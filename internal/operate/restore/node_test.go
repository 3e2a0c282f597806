package restore_test

import "fmt"

// server is a Redis server. token is its run, history is its history of writes, and before is the history that it
// followed earlier.
type server struct {
	token, history, before string
	data                   *data
	promoted               bool // the server did not start from a file
}

// node is a shard's primary, with its replica and its append-only file. It may also have an older file, and an old
// primary that was cut off and keeps running.
type node struct {
	w        *world
	shard    int
	up, cut  *server
	changed  bool // whether it has changed since the last check
	cutUntil int64
	writes   []func(*data)
	base     int      // number of writes dropped from the front
	copies   [2]*data // the replica and the append-only file
	applied  [2]int
	old      *data
	oldAt    int64
	stalls   [2]bool // copies that get no writes now
	doomed   int64   // when the primary will fail; 0 for never
	flips    int     // demotions and promotions that no one has noticed yet
}

func (n *node) newServer(d *data, before string, promoted bool) *server {
	n.w.names++
	return &server{fmt.Sprint("run", n.w.names), fmt.Sprint("history", n.w.names), before, d, promoted}
}

func (n *node) newData() *data {
	d := newData()
	d.loose = n.w.loose()
	return d
}

func newNode(w *world, shard int) *node {
	n := &node{w: w, shard: shard}
	n.up = n.newServer(n.newData(), "", true)
	return n
}

func (n *node) resync() {
	n.writes, n.base, n.applied = nil, 0, [2]int{}
	n.copies = [2]*data{n.up.data.clone(), n.up.data.clone()}
}

// call runs a script on a server. The copies of the primary get the write later.
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

func (n *node) failover() {
	n.count("failovers", n.copies[0])
	n.up = n.newServer(n.copies[0], n.up.history, true)
	n.moved()
}

// leave promotes the replica. The old primary keeps running for a while, and the agents that are pinned to the shard
// still use it.
func (n *node) leave() {
	n.cut, n.cutUntil = n.up, n.w.now+2_000+n.w.rng.Int64N(10_000)
	n.w.stats["primaries left behind"]++
	n.failover()
}

// flip promotes the replica, and then the old primary again. The old primary has lost all writes that the replica
// lacked.
func (n *node) flip() {
	n.count("demoted and promoted", n.copies[0])
	n.up.data, n.up.before = n.copies[0], n.up.history
	n.w.names++
	n.up.history = fmt.Sprint("history", n.w.names)
	n.flips++
	n.moved()
}

func (n *node) restart() {
	n.count("restarts", n.copies[1])
	n.up = n.newServer(n.copies[1], "", false)
	n.moved()
}

func (n *node) older() {
	n.count("older files", n.old)
	n.up = n.newServer(n.old, "", false)
	n.old = nil
	n.moved()
}

// flush simulates FLUSHALL, which changes neither the run nor the history.
func (n *node) flush() {
	n.count("flushes", newData())
	n.up.data = n.newData()
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
