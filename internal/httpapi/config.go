package httpapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Config of the balance server. Nothing has a default; zero is refused but where it says what it means.
type Config struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// TLS, if not nil, is what the listener offers; it holds the certificate.
	TLS *tls.Config
	// ReadHeaderTimeout and ReadTimeout bound a request's head, and all of it; WriteTimeout all until the answer is
	// written; IdleTimeout a connection without requests. HandleTimeout bounds the work on one request and is below
	// WriteTimeout.
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout, HandleTimeout time.Duration
	// DrainTimeout bounds the wait for requests under way when Run is told to stop.
	DrainTimeout time.Duration
	// HeaderBytes bounds a request's head, BodyBytes the body of one credit, BatchBytes that of a batch.
	HeaderBytes           int
	BodyBytes, BatchBytes int64
	// BatchCredits bounds the credits of a batch.
	BatchCredits int
	// InFlight bounds the requests under way; more are answered 503.
	InFlight int
}

// Check tells everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("the address %.80q to listen on is not host:port", c.Listen)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"ReadHeaderTimeout", c.ReadHeaderTimeout}, {"ReadTimeout", c.ReadTimeout}, {"WriteTimeout", c.WriteTimeout},
		{"IdleTimeout", c.IdleTimeout}, {"HandleTimeout", c.HandleTimeout}, {"DrainTimeout", c.DrainTimeout},
	} {
		if d.v < time.Millisecond {
			bad("%s is %s: want at least 1ms", d.name, d.v)
		}
	}
	if c.HandleTimeout >= c.WriteTimeout {
		bad("HandleTimeout is %s: want less than WriteTimeout, %s, or its answer is never written", c.HandleTimeout,
			c.WriteTimeout)
	}
	for _, n := range []struct {
		name         string
		v, low, high int64
	}{
		{"HeaderBytes", int64(c.HeaderBytes), 1024, 1 << 20}, {"BodyBytes", c.BodyBytes, 512, 1 << 20},
		{"BatchBytes", c.BatchBytes, 512, 16 << 20}, {"BatchCredits", int64(c.BatchCredits), 1, 1_000},
		{"InFlight", int64(c.InFlight), 1, 100_000},
	} {
		if n.v < n.low || n.v > n.high {
			bad("%s is %d: want %d to %d", n.name, n.v, n.low, n.high)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("balance server configuration: %w", errors.Join(errs...))
}
