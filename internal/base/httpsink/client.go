package httpsink

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Client configures a Transport.
type Client struct {
	// Dial opens the connections: the DialContext of NewDialer's Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is the configuration for https; nil means the system's root certificates.
	TLS *tls.Config
	// Time limits for a TLS handshake, for the headers of a response, and for an idle connection.
	HandshakeTimeout, HeaderTimeout, IdleTimeout time.Duration
	// Concurrency is the maximum number of connections.
	Concurrency int
}

// NewDialer returns a Dialer that limits the time of one attempt to connect.
func NewDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
}

// NewTransport returns a Transport for HTTP/1.1. It sets every option whose default could wait forever or use a proxy
// of the environment. A Transport does not follow redirects: it returns them as responses.
func NewTransport(c Client) *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // ignore proxies from the environment
		DialContext:            c.Dial,
		TLSClientConfig:        c.TLS.Clone(),
		TLSHandshakeTimeout:    c.HandshakeTimeout,
		DisableCompression:     true,
		MaxIdleConns:           c.Concurrency,
		MaxIdleConnsPerHost:    c.Concurrency,
		MaxConnsPerHost:        c.Concurrency,
		IdleConnTimeout:        c.IdleTimeout,
		ResponseHeaderTimeout:  c.HeaderTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// RetryAfter parses a Retry-After header, which has seconds or a date. It returns 0 if there is no valid value.
func RetryAfter(value string) time.Duration {
	if value == "" {
		return 0
	}
	if s, err := strconv.ParseInt(value, 10, 32); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
