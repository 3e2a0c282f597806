package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
)

// idleTimeout is how long a connection is kept without a request. Many servers close theirs after a minute.
const idleTimeout = 30 * time.Second

// maxBody is how many bytes of an answer are read, so that its connection can be used again. They are ignored.
const maxBody = 64 << 10

// newDialer returns the Dialer for all connections to the endpoint.
func newDialer(c *Config) *net.Dialer {
	d := httpsink.NewDialer(c.ConnectTimeout)
	if !c.AllowPrivate {
		d.ControlContext = refusePrivate
	}
	return d
}

// newTransport returns a Transport for HTTP/1.1 and, with TLS, HTTP/2. It may send a request again by itself, but only
// if the server has certainly not processed it: a repeat would do no harm anyway.
func newTransport(c *Config, dialer *net.Dialer) *http.Transport {
	dial := dialer.DialContext
	if c.Dial != nil {
		dial = c.Dial
	}
	t := httpsink.NewTransport(httpsink.Client{
		Dial: dial, TLS: tlsConfig(c), HandshakeTimeout: c.ConnectTimeout, HeaderTimeout: c.Timeout,
		IdleTimeout: idleTimeout, Concurrency: c.Concurrency,
	})
	t.Protocols.SetHTTP2(true)
	// All requests share one connection of HTTP/2. If it is dead, only a ping notices that soon.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: c.ConnectTimeout, PingTimeout: c.ConnectTimeout}
	return t
}

func tlsConfig(c *Config) *tls.Config {
	if c.TLS == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c.TLS.Clone()
}

// answer is the result of one request.
type answer struct {
	status     int
	retryAfter time.Duration
	// connected says that the request may have reached the endpoint.
	connected bool
	// err is nil if and only if a status came.
	err error
}

// post sends the event of an item once.
func (h *Handler) post(ctx context.Context, it *item) answer {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	})
	body := cloudevent.AppendEvent(nil, h.source, it.id, it.grant)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: fmt.Errorf("make the request: %w", err)}
	}
	req.Header.Set("User-Agent", "hongbao")
	req.Header.Set("Content-Type", cloudevent.StructuredType)
	if it.grant.Trace != "" {
		req.Header.Set("Traceparent", it.grant.Trace)
	}
	h.signer.sign(req.Header, it.id, h.now(), body)
	resp, err := h.http.RoundTrip(req)
	if err != nil {
		return answer{connected: connected, err: err}
	}
	defer resp.Body.Close()
	// The status decides. If the rest of the answer does not come, that changes nothing.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return answer{status: resp.StatusCode, connected: true,
		retryAfter: httpsink.RetryAfter(resp.Header.Get("Retry-After"))}
}
