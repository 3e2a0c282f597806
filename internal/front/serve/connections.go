package serve

import (
	"net"
	"net/netip"
	"sync"

	"go.uber.org/zap"
)

// counted is a listener that counts its open connections. It limits the connections of each address, so that
// one address can't take all of them. It closes a connection above the limit at once.
type counted struct {
	net.Listener
	most    int            // maximum per address; 0: no limit
	trusted []netip.Prefix // proxies, which have no limit
	changed func(by int)
	log     *zap.Logger

	mu sync.Mutex
	by map[netip.Prefix]int
}

// Accept implements net.Listener.
func (c *counted) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		met, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		at := met.Addr().Unmap().WithZone("")
		from := network(at)
		if !c.take(from, within(c.trusted, at)) {
			c.log.Info("closed a connection: its address has as many open connections as serve.address_connections allows; if "+
				"the address is a proxy, add its network to serve.trusted_proxies", zap.Stringer("address", from),
				zap.Int("open", c.most))
			_ = conn.Close()
			continue
		}
		c.changed(1)
		return &countedConn{Conn: conn, gone: sync.OnceFunc(func() {
			c.giveBack(from)
			c.changed(-1)
		})}, nil
	}
}

// take counts a connection and returns true. If the network has reached its limit, it returns false.
func (c *counted) take(from netip.Prefix, trusted bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > 0 && !trusted && c.by[from] >= c.most {
		return false
	}
	c.by[from]++
	return true
}

func (c *counted) giveBack(from netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[from]--; c.by[from] == 0 {
		delete(c.by, from)
	}
}

// countedConn is a connection that tells the listener when it is closed.
type countedConn struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

// network returns the network whose addresses count as one. For IPv6 that is the /64 network, because providers assign
// a /64 to each customer.
func network(at netip.Addr) netip.Prefix {
	bits := 32
	if at.Is6() {
		bits = 64
	}
	p, _ := at.Prefix(bits) // an invalid address gives the zero prefix; no connection has one
	return p
}

func within(networks []netip.Prefix, at netip.Addr) bool {
	for _, p := range networks {
		if p.Contains(at) {
			return true
		}
	}
	return false
}
