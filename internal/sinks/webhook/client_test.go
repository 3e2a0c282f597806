package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// secured returns a receiver with TLS, and its authority. It records which protocol its requests have.
func secured(t *testing.T, auth tls.ClientAuthType, http2 bool) (r *receiver, roots *x509.CertPool,
	protocols *atomic.Value) {
	t.Helper()
	r, protocols = &receiver{}, &atomic.Value{}
	r.set(func(w http.ResponseWriter, req *http.Request) {
		protocols.Store(req.Proto)
		w.WriteHeader(http.StatusNoContent)
	})
	r.Server = httptest.NewUnstartedServer(r.handler(t, []string{secret}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.EnableHTTP2 = http2
	r.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: auth}
	r.StartTLS()
	t.Cleanup(r.Close)
	roots = x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return r, roots, protocols
}

func with(c *tls.Config) func(*Config) {
	c.MinVersion = tls.VersionTLS12
	return func(cfg *Config) { cfg.TLS = c }
}

// The endpoint's certificate is from a private authority, and the endpoint requires a client certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	r, roots, _ := secured(t, tls.RequireAnyClientCert, false)
	for name, config := range map[string]*tls.Config{"the system's roots": nil,
		"an unknown authority": {Certificates: r.TLS.Certificates}} {
		h := newHandler(t, r, func(c *Config) {
			if config != nil {
				with(config)(c)
			}
		})
		errs := h.handle(t.Context(), grants(1, 2))
		require.Equal(t, []string{"outage, transient", "outage, transient"}, kinds(errs), name)
		var untrusted x509.UnknownAuthorityError
		require.ErrorAs(t, errs[0], &untrusted, name)
		require.ErrorAs(t, h.Check(t.Context()), &untrusted, name)
	}
	bare := newHandler(t, r, with(&tls.Config{RootCAs: roots}))
	for _, err := range bare.handle(t.Context(), grants(1, 2)) {
		require.Error(t, err, "the client has no certificate")
	}
	require.ErrorContains(t, bare.Check(t.Context()), "certificate required")
	require.Empty(t, r.got())
	good := newHandler(t, r, with(&tls.Config{RootCAs: roots, Certificates: r.TLS.Certificates}))
	require.NoError(t, good.Check(t.Context()))
	require.Empty(t, r.got(), "a check sends no event")
	require.Nil(t, good.handle(t.Context(), grants(1, 2)))
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	for http2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		r, roots, protocols := secured(t, tls.NoClientCert, http2)
		h := newHandler(t, r, with(&tls.Config{RootCAs: roots}))
		require.Nil(t, h.handle(t.Context(), grants(1, 30)))
		require.Equal(t, want, protocols.Load())
		require.NoError(t, h.Check(t.Context()))

		r.status(http.StatusUnauthorized)
		require.Equal(t, []string{"broken", "broken"}, kinds(h.handle(t.Context(), grants(1, 2))))
		r.set(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		require.Equal(t, []string{"outage, unknown", "outage, unknown"}, kinds(h.handle(t.Context(), grants(1, 2))))
		r.set(nil)
		require.Nil(t, h.handle(t.Context(), grants(1, 2)))
	}
}

// Connections are used again, also after an answer with a body. A body of any size is accepted.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	var connections atomic.Int64
	r.Server = httptest.NewUnstartedServer(r.handler(t, []string{secret}))
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	answer := func(size int) {
		r.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	}
	answer(10_000)
	h := newHandler(t, r, oneAtATime)
	require.Nil(t, h.handle(t.Context(), grants(1, 20)))
	require.EqualValues(t, 1, connections.Load())
	answer(10 << 20)
	require.Nil(t, h.handle(t.Context(), grants(21, 21)))
}

func TestClientOptions(t *testing.T) {
	t.Parallel()
	cfg := testConfig("https://crm.example.com")
	cfg.AllowPrivate = false
	d := newDialer(&cfg)
	require.NotNil(t, d.ControlContext)
	require.Equal(t, cfg.ConnectTimeout, d.Timeout)
	tr := newTransport(&cfg, d)
	require.Nil(t, tr.Proxy)
	require.Equal(t, []time.Duration{cfg.ConnectTimeout, cfg.Timeout, idleTimeout},
		[]time.Duration{tr.TLSHandshakeTimeout, tr.ResponseHeaderTimeout, tr.IdleConnTimeout})
	require.Equal(t, cfg.Concurrency, tr.MaxConnsPerHost)
	require.True(t, tr.Protocols.HTTP2())
	require.Equal(t, uint16(tls.VersionTLS12), tr.TLSClientConfig.MinVersion)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, newHandler(t, r).Check(t.Context()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorContains(t, newHandler(t, r, to("http://"+l.Addr().String())).Check(t.Context()), "connect to 127.0.0.1:")
	silent := accept(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	hangs := newHandler(t, r, to("https"+silent[4:]), func(c *Config) { c.ConnectTimeout = 50 * time.Millisecond })
	require.ErrorContains(t, hangs.Check(t.Context()), "TLS handshake with 127.0.0.1:")
	require.Empty(t, r.got())
}
