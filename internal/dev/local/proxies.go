package local

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/dev/proxy"
)

// Proxies are between every client and the servers, and cause faults on request.
type Proxies struct{ Redis, Kafka *proxy.Proxy }

// redisBehind puts a proxy in front of Redis.
func (s *Servers) redisBehind(addr string) (err error) {
	s.direct = addr
	if s.Proxies.Redis, err = proxy.Start(addr); err == nil {
		s.Redis = s.Proxies.Redis.Addr
	}
	return err
}

// kafkaBehind listens for the broker, with a proxy in front. The broker announces its address to its clients, so it
// gets the proxy's address.
func (s *Servers) kafkaBehind(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen for Kafka: %w", err)
	}
	if s.Proxies.Kafka, err = proxy.Start(l.Addr().String()); err != nil {
		_ = l.Close() // the error above counts
		return nil, err
	}
	s.Kafka = s.Proxies.Kafka.Addr
	return behind{l, netip.MustParseAddrPort(s.Kafka)}, nil
}

// behind is a listener with another address in front of it.
type behind struct {
	net.Listener
	front netip.AddrPort
}

// Addr returns the address to which clients connect.
func (b behind) Addr() net.Addr { return net.TCPAddrFromAddrPort(b.front) }

// close ends the proxies that were started.
func (p *Proxies) close() error {
	for _, one := range []*proxy.Proxy{p.Kafka, p.Redis} {
		if one == nil {
			continue
		}
		if err := one.Close(); err != nil {
			return err
		}
	}
	return nil
}

// DirectRedis returns a client without a proxy, for watching the effect of faults. The caller closes it.
func (d *Deployment) DirectRedis() redis.UniversalClient {
	cfg := *d.Config
	cfg.Redis.Addrs = []string{d.Servers.direct}
	return cfg.RedisClient()
}
