// Package virtual is what histories run on in place of machines: processes, a network that fails as a plan says, and a
// Redis, all in memory. Of Hongbao it knows the names of the scripts, and the
// moments of a transaction of SQLite.
package virtual

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Epoch is when histories begin. A bubble begins in 2000, and a campaign of before 2000 is not valid.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Latency is the mean time of a delivery.
const Latency = time.Millisecond

// Net is a network of processes and servers in memory.
type Net struct {
	seed  uint64
	note  func(group, what string) // counts what a history reaches
	trace io.Writer                // nil: no trace

	mu      sync.Mutex
	faulty  bool // requests may fail
	chooser Chooser
	applied []Fault
	failed  []error // of scripts
	servers map[string]*server
	outages map[string]int // by address: how many deeds keep the server down
	conns   map[*pair]struct{}
	dials   int
	seen    map[Point]int // N is 0: how many requests there were
	scripts *scripts
	cut     func() // called once a batch is on its way to Kafka, whose answer will be lost; nil: nobody waits
}

type server struct {
	name   string
	wire   func() Wire
	accept func(net.Conn)
	Down   bool // for good
}

// NewNet makes a network. note counts what happens, by group; a nil trace is not written.
func NewNet(seed uint64, how Chooser, note func(group, what string), trace io.Writer) *Net {
	return &Net{seed: seed, chooser: how, note: note, trace: trace, servers: map[string]*server{}, outages: map[string]int{},
		conns: map[*pair]struct{}{}, seen: map[Point]int{}, scripts: newScripts()}
}

// End releases what a history leaves. Package store keeps the clients of its whole process, and each client this network.
func (n *Net) End() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace, n.note, n.chooser, n.applied, n.servers, n.outages, n.conns = nil, nil, nil, nil, nil, nil, nil
	n.seen, n.scripts = nil, nil
}

// Serve registers a server.
func (n *Net) Serve(addr, name string, w func() Wire, accept func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[addr] = &server{name: name, wire: w, accept: accept}
}

// SetFaulty says whether requests may fail from now on.
func (n *Net) SetFaulty(faulty bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faulty = faulty
}

// CutNext loses Kafka's answer to the next batch, and calls f once that batch is on its way; nil: no longer.
func (n *Net) CutNext(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = f
}

// IsFaulty reports whether requests may fail.
func (n *Net) IsFaulty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faulty
}

// Down begins an outage of a server, which breaks its connections, or ends one. A server is up once all of its outages
// have ended.
func (n *Net) Down(addr string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !down {
		n.outages[addr]--
		return
	}
	n.outages[addr]++
	for p := range n.conns {
		if p.addr == addr {
			p.reset(true)
		}
	}
}

// faultAt counts a request, and returns its fault. The caller holds mu.
func (n *Net) faultAt(p *Proc, server, op string) (f Fault, is bool) {
	at := Point{Process: p.Name, Server: server, Op: op}
	n.seen[at]++
	at.N = n.seen[at]
	if !n.faulty {
		return f, false
	}
	if f, is = n.chooser.choose(at); is {
		n.applied = append(n.applied, f)
		n.note("fault", string(f.Kind)+" "+server)
		n.tracef("FAULT %s %+v", f.Kind, at)
	}
	return f, is
}

// Failures returns the errors of scripts that no script gives on purpose, such as that of arithmetic on nil.
func (n *Net) Failures() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Say writes a line to the trace.
func (n *Net) Say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tracef(format, args...)
}

// tracef is say while the caller holds mu.
func (n *Net) tracef(format string, args ...any) {
	if n.trace != nil {
		fmt.Fprintf(n.trace, "%.6f "+format+"\n", append([]any{time.Since(Epoch).Seconds()}, args...)...)
	}
}

// Faults returns the faults of requests so far, in their order.
func (n *Net) Faults() []Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(make([]Fault, 0, len(n.applied)), n.applied...)
}

// Dial connects a process to a server.
func (n *Net) dial(ctx context.Context, p *Proc, addr string) (net.Conn, error) {
	n.mu.Lock()
	s := n.servers[addr]
	refused := s == nil || s.Down || n.outages[addr] > 0 || p.dead
	if refused || p.apart[addr] {
		n.mu.Unlock()
		if !refused {
			<-ctx.Done() // packets vanish
			return nil, ctx.Err()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	n.dials++
	c := &pair{net: n, proc: p, addr: addr, server: s.name, wire: s.wire(),
		rng: rand.New(rand.NewPCG(n.seed, uint64(n.dials)))}
	c.cond = sync.NewCond(&n.mu)
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	s.accept(&end{c: c, side: serverSide})
	return &end{c: c, side: clientSide}, nil
}
