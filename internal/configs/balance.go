package configs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Balance is the server `hongbao balance`.
type Balance struct {
	// Address (host:port) on which the server listens for clients; 0.0.0.0:8090 for every interface.
	//
	// Port 0 selects a free port.
	Listen string `knob:"balance.listen,common" default:"127.0.0.1:8090" form:"listen"`
	// TLS, if not nil, is the TLS configuration of the listener, with its certificate.
	TLS *tls.Config
	// Address (host:port) of /livez, /readyz and /metrics, such as 127.0.0.1:8091; empty for no such listener.
	// balance.listen has /livez and /readyz as well.
	OpsListen string `knob:"balance.ops_listen,common" form:"ops"`
	// Time limit for the arrival of a request's head.
	ReadHeaderTimeout time.Duration `knob:"balance.read_header_timeout" default:"5s" want:"1ms to 1m"`
	// Time limit for the arrival of a whole request.
	ReadTimeout time.Duration `knob:"balance.read_timeout" default:"10s" want:"1ms to 5m"`
	// Time limit for a request, until its answer is written.
	WriteTimeout time.Duration `knob:"balance.write_timeout" default:"30s" want:"2ms to 10m"`
	// After this time without a request, the server closes a connection. It should be longer than the callers' own idle
	// timeout.
	IdleTimeout time.Duration `knob:"balance.idle_timeout" default:"75s" want:"1ms to 1h"`
	// Time limit for the work on one request.
	HandleTimeout time.Duration `knob:"balance.handle_timeout" default:"15s" want:"1ms to 9m"`
	// How long a stopping server waits for the running requests.
	DrainTimeout time.Duration `knob:"balance.drain_timeout" default:"20s" want:"1ms to 1h"`
	// The largest body of a request with a batch.
	BatchBytes int64 `knob:"balance.batch_bytes" default:"1048576" want:"512 to 16_777_216 bytes"`
	// The most credits in one batch.
	BatchCredits int `knob:"balance.batch_credits" default:"500" want:"1 to 1000 credits"`
	// The most open connections. Further connections wait until one is closed.
	Connections int `knob:"balance.connections" default:"20000" want:"1 to 1_000_000 connections"`
	// The most concurrent requests, of which one client gets at most half. Further requests get the status 503.
	InFlight int `knob:"balance.in_flight" default:"1000" want:"1 to 100_000 requests"`
	// File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has a certificate.
	TLSCert string `knob:"balance.tls_cert"`
	// File with the key of the server's certificate, in PEM. Protect this file like the file of a secret.
	TLSKey string `knob:"balance.tls_key"`
}

// Check returns everything that is wrong with the configuration.
func (c *Balance) Check() error {
	errs := knob.Check(c)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.HandleTimeout >= c.WriteTimeout {
		bad("HandleTimeout is %s: want less than WriteTimeout, %s, or its answer is never written", c.HandleTimeout,
			c.WriteTimeout)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("balance server configuration: %w", errors.Join(errs...))
}
