package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// alertTime is how long Check waits for an alert of TLS. With TLS 1.3 the endpoint rejects a client certificate only
// after the handshake.
const alertTime = 300 * time.Millisecond

// Check finds the address of the endpoint, connects, and makes the TLS handshake of an https endpoint. It sends no
// event, so it can't tell whether the path and the secret are right.
func (h *Handler) Check(ctx context.Context) error {
	host, port := h.endpoint.Hostname(), h.endpoint.Port()
	secure := h.endpoint.Scheme == "https"
	switch {
	case port != "":
	case secure:
		port = "443"
	default:
		port = "80"
	}
	conn, err := h.dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("find the address of %s: %w; check the webhook's url and the DNS of this machine", host, err)
	case err != nil:
		return fmt.Errorf("connect to %s: %w", h.endpoint.Host, err)
	}
	defer conn.Close()
	if !secure {
		return nil
	}
	config := tlsConfig(&h.cfg)
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	if err := handshake(ctx, tls.Client(conn, config), h.cfg.ConnectTimeout); err != nil {
		return fmt.Errorf("TLS handshake with %s: %w", h.endpoint.Host, err)
	}
	return nil
}

// handshake makes the handshake, and waits for an alert after it.
func handshake(ctx context.Context, conn *tls.Conn, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(alertTime)); err != nil {
		return err
	}
	var first [1]byte
	if _, err := conn.Read(first[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
