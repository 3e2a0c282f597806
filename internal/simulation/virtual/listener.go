package virtual

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Listener is a net.Listener in memory.
type Listener struct {
	addr  *net.TCPAddr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewListener makes a listener. Give gives it connections.
func NewListener(port int) *Listener {
	return &Listener{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, conns: make(chan net.Conn),
		done: make(chan struct{})}
}

// Give waits until somebody accepts the connection, or the listener is closed.
func (l *Listener) Give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// own is a listener of a process. Once it is closed, or its process is dead, nobody can connect.
type own struct {
	*Listener
	server *server
	net    *Net
}

// Listen is for configs.Seams. It serves HTTP.
func (p *Proc) Listen(_ context.Context, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := NewListener(int(at.Port()))
	p.net.Serve(addr, "serve", HTTP, l.Give)
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.listens = append(p.listens, addr)
	return &own{l, p.net.servers[addr], p.net}, nil
}

// Close implements net.Listener.
func (l *own) Close() error {
	l.net.mu.Lock()
	l.server.Down = true
	l.net.mu.Unlock()
	return l.Listener.Close()
}
