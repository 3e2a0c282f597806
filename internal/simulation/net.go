package simulation

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

// latency is the mean time of a delivery.
const latency = time.Millisecond

// Net is a network of processes and servers in memory.
type Net struct {
	seed  uint64
	cover *Coverage
	trace io.Writer // nil: no trace

	mu      sync.Mutex
	faulty  bool // requests may fail
	chooser chooser
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
	wire   func() wire
	accept func(net.Conn)
	down   bool // for good
}

func newNet(seed uint64, how chooser, cover *Coverage, trace io.Writer) *Net {
	return &Net{seed: seed, chooser: how, cover: cover, trace: trace, servers: map[string]*server{}, outages: map[string]int{},
		conns: map[*pair]struct{}{}, seen: map[Point]int{}, scripts: newScripts()}
}

// end releases what a history leaves. Package store keeps the clients of its whole process, and each client this network.
func (n *Net) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace, n.cover, n.chooser, n.applied, n.servers, n.outages, n.conns = nil, nil, nil, nil, nil, nil, nil
	n.seen, n.scripts = nil, nil
}

// serve registers a server.
func (n *Net) serve(addr, name string, w func() wire, accept func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[addr] = &server{name: name, wire: w, accept: accept}
}

// setFaulty says whether requests may fail from now on.
func (n *Net) setFaulty(faulty bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faulty = faulty
}

// down begins an outage of a server, which breaks its connections, or ends one. A server is up once all of its outages
// have ended.
func (n *Net) down(addr string, down bool) {
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
	at := Point{Process: p.name, Server: server, Op: op}
	n.seen[at]++
	at.N = n.seen[at]
	if !n.faulty {
		return f, false
	}
	if f, is = n.chooser.choose(at); is {
		n.applied = append(n.applied, f)
		n.cover.note("fault", string(f.Kind)+" "+server)
		n.tracef("FAULT %s %+v", f.Kind, at)
	}
	return f, is
}

// failures returns the errors of scripts that no script gives on purpose, such as that of arithmetic on nil.
func (n *Net) failures() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

func (n *Net) tracef(format string, args ...any) {
	if n.trace != nil {
		fmt.Fprintf(n.trace, "%.6f "+format+"\n", append([]any{time.Since(epoch).Seconds()}, args...)...)
	}
}

// faults returns the faults of requests so far, in their order.
func (n *Net) faults() []Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(make([]Fault, 0, len(n.applied)), n.applied...)
}

// dial connects a process to a server.
func (n *Net) dial(ctx context.Context, p *Proc, addr string) (net.Conn, error) {
	n.mu.Lock()
	s := n.servers[addr]
	refused := s == nil || s.down || n.outages[addr] > 0 || p.dead
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

// listener is a net.Listener in memory.
type listener struct {
	addr  *net.TCPAddr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener(port int) *listener {
	return &listener{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, conns: make(chan net.Conn),
		done: make(chan struct{})}
}

func (l *listener) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }
