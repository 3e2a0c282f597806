// Package proxy forwards TCP connections and causes faults in them on request. Tests use it, and so does
// `hongbao dev`.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Faults counts the faults that a Proxy has caused in its connections.
type Faults struct {
	Cut       int // connections closed by CutAll or Point
	Refused   int // connections refused
	Swallowed int // dropped answers
	Delayed   int // delayed pieces of answers
}

// Proxy forwards TCP connections to a server and causes faults on request. It is safe for concurrent use.
type Proxy struct {
	// Addr is the host:port to which clients connect.
	Addr string

	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	links  map[*link]struct{}
	refuse bool
	delay  time.Duration
	order  *order // nil: no answer is dropped
	faults Faults
}

// order says which answers to drop, and how many.
type order struct {
	left  int // how many more requests to mark
	match func(request []byte) bool
	whole func(answer []byte) bool // nil: the first piece is the whole answer
}

// take marks a request whose answer must be dropped, if the order matches the request.
func (o *order) take(request []byte) bool {
	if o.left == 0 || o.match != nil && !o.match(request) {
		return false
	}
	o.left--
	return true
}

// link is a client's connection together with its connection to the server.
type link struct {
	client, server net.Conn
	target         string

	// Guarded by Proxy.mu.
	order   *order // if not nil, the server's next answer is dropped
	fired   bool   // whether the answer was dropped
	dropped []byte
}

func (l *link) close() {
	_ = l.client.Close() // an error only means that the connection was closed before
	_ = l.server.Close()
}

// Start starts a proxy for target (host:port), which need not be running yet. The caller closes it.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy of %s: %w", target, err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: map[*link]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Close closes the proxy and its connections. It returns when they are closed.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.closeLinks()
	p.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the proxy of %s: %w", p.pointsTo(), err)
	}
	return nil
}

// Dial connects to the proxy and ignores the address. It is for clients such as Kafka's, which learn the servers'
// addresses from the servers.
func (p *Proxy) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.Addr)
}

// CutAll closes every connection at once, even in the middle of a request.
func (p *Proxy) CutAll() {
	n := p.closeLinks()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.Cut += n
}

func (p *Proxy) closeLinks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
	n := len(p.links)
	clear(p.links)
	return n
}

// SetTarget directs new connections to another server and closes the existing ones, as when an address moves.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.CutAll()
}

func (p *Proxy) pointsTo() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Refuse makes the proxy reset new connections. Refuse(false) ends this. Existing connections continue; CutAll
// closes them.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// SwallowAnswers drops the answers to the next n matching requests. Each request reaches the server; the proxy waits
// for the answer, drops it and closes the connection. So the server has done the work, but the client does not know.
// match gets the bytes that the proxy read from the client at once, usually a whole request; a nil match accepts
// every request. n = 0 cancels an earlier call. The count is exact for clients that have only one open request per
// connection, such as kafka-go, go-redis and pgx. If a connection ends before the server answers, its request does
// not count, and the next one is used instead.
func (p *Proxy) SwallowAnswers(n int, match func(request []byte) bool) {
	p.swallow(&order{left: n, match: match})
}

// SwallowWholeAnswers is SwallowAnswers for answers that arrive in several pieces. It drops
// pieces and passes all of them so far to whole, until whole returns true.
func (p *Proxy) SwallowWholeAnswers(n int, match, whole func([]byte) bool) {
	p.swallow(&order{left: n, match: match, whole: whole})
}

func (p *Proxy) swallow(o *order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = o
}

// Delay delays every piece of an answer by d; d = 0 ends the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Fired returns how many faults the proxy has caused so far.
func (p *Proxy) Fired() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Add(1)
		go p.serve(c)
	}
}

// serve connects a client to the server and forwards bytes until one side closes.
func (p *Proxy) serve(c net.Conn) {
	defer p.wg.Done()
	if p.refused() {
		reset(c)
		return
	}
	var d net.Dialer
	target := p.pointsTo()
	s, err := d.DialContext(p.ctx, "tcp", target)
	if err != nil {
		reset(c) // the server does not answer, so the client's connection fails, too
		return
	}
	l := &link{client: c, server: s, target: target}
	if !p.add(l) {
		reset(c)
		_ = s.Close() // the server connection is unused so far
		return
	}
	defer p.remove(l)
	p.wg.Add(1)
	go p.answers(l)
	p.requests(l)
}

func (p *Proxy) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		p.faults.Refused++
	}
	return p.refuse
}

// reset closes a connection with a TCP reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection is closed on the next line anyway
	}
	_ = c.Close()
}

// add registers a link and returns true, unless the proxy refuses connections, was closed, or has a new target.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		p.faults.Refused++
	}
	if p.refuse || p.ctx.Err() != nil || l.target != p.target {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	delete(p.links, l)
	if l.order != nil && !l.fired {
		l.order.left++ // the connection ended before the server answered, so no answer was dropped
		l.order = nil
	}
}

const proxyBuffer = 64 << 10

// requests forwards bytes from the client to the server.
func (p *Proxy) requests(l *link) {
	buf := make([]byte, proxyBuffer)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			p.mark(l, buf[:n])
			if _, err := l.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// mark records, before the server sees the request, that the answer must be dropped.
func (p *Proxy) mark(l *link, request []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order == nil || l.order != nil {
		return
	}
	if p.order.take(request) {
		l.order = p.order
	}
}

// answers forwards bytes from the server to the client, or drops them.
func (p *Proxy) answers(l *link) {
	defer p.wg.Done()
	defer p.remove(l)
	buf := make([]byte, proxyBuffer)
	for {
		n, err := l.server.Read(buf)
		if n > 0 {
			swallowed, more := p.drop(l, buf[:n])
			if more {
				continue
			}
			if swallowed || !p.wait() {
				return
			}
			if _, err := l.client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drop reports whether the piece belongs to a dropped answer, and whether more of that answer will come.
func (p *Proxy) drop(l *link, piece []byte) (swallowed, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.order == nil {
		return false, false
	}
	if l.dropped = append(l.dropped, piece...); l.order.whole != nil && !l.order.whole(l.dropped) {
		return true, true
	}
	l.fired = true
	p.faults.Swallowed++
	return true, false
}

// wait pauses for the duration that Delay set. It returns false if the proxy was closed in the meantime.
func (p *Proxy) wait() bool {
	p.mu.Lock()
	d := p.delay
	if d > 0 {
		p.faults.Delayed++
	}
	p.mu.Unlock()
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}
