package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Dialer opens connections for a client of Kafka. The client must not use TLS itself.
type Dialer struct {
	Timeout time.Duration // limits a connection without its TLS handshake, which the context limits
	TLS     *tls.Config   // nil: no TLS
	// Roots, if not nil, returns the authorities for a connection, in place of TLS.RootCAs.
	Roots func() *x509.CertPool
	// Connect, if not nil, opens the connections instead of a net.Dialer.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dial connects to address. The connection returns an error instead of an answer that can't come from a broker.
func (d Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: d.Timeout, KeepAlive: 15 * time.Second}
	connect := dialer.DialContext
	if d.Connect != nil {
		connect = d.Connect
	}
	raw, err := connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.TLS == nil {
		return &conn{Conn: raw, address: address}, nil
	}
	config := named(d.TLS, address)
	if d.Roots != nil {
		config.RootCAs = d.Roots()
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, handshakeError(address, err)
	}
	return &conn{Conn: secure, address: address}, nil
}

// named returns a configuration that expects a certificate for the host of the address, unless c names another one.
func named(c *tls.Config, address string) *tls.Config {
	c = c.Clone()
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(address)
	}
	return c
}

func handshakeError(address string, err error) error {
	var other tls.RecordHeaderError // the server answers, but not by TLS
	if errors.As(err, &other) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%s does not answer by TLS: %w; set kafka.tls to false, or check the host and port in "+
			"kafka.brokers", address, err)
	}
	return fmt.Errorf("TLS handshake with %s: %w", address, err)
}
