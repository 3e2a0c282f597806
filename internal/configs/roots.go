package configs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"
)

// roots reads a file of CA certificates, and watches it. The parameter name is the name of the knob.
func (l *loader) roots(name, path string) *watched[x509.CertPool] {
	w, err := watch(func() (*x509.CertPool, error) { return ReadRoots(path) }, path)
	if err != nil {
		l.bad(name, "%v", err)
	}
	l.watched = append(l.watched, w)
	l.authorities[name] = w
	return w
}

// rootsOf returns what returns the current authorities of a knob; nil if the knob is empty.
func (c *Config) rootsOf(knob string) func() *x509.CertPool {
	if w := c.authorities[knob]; w != nil {
		return w.current
	}
	return nil
}

// dialRedis opens a connection to Redis with the current authorities. go-redis itself would keep the first ones.
func (c *Config) dialRedis(ctx context.Context, network, address string) (net.Conn, error) {
	secure := c.redisTLS.Clone()
	secure.RootCAs = c.authorities["redis.tls_ca"].current()
	d := tls.Dialer{Config: secure, NetDialer: &net.Dialer{Timeout: c.Redis.DialTimeout, KeepAlive: 15 * time.Second}}
	return d.DialContext(ctx, network, address)
}

// verifyBy makes a client verify its only server by the authorities that are current at each handshake.
func verifyBy(c *tls.Config, server string, roots func() *x509.CertPool) {
	c.InsecureSkipVerify = true // VerifyConnection verifies instead
	c.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots(), DNSName: server, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		if _, err := s.PeerCertificates[0].Verify(o); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}
