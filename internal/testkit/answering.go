package testkit

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Answering starts a server that reads once from each connection, writes the answer and closes the connection. With
// certificates it uses TLS. It returns the server's address.
func Answering(t *testing.T, answer string, certificates ...tls.Certificate) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if len(certificates) > 0 {
		l = tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates})
	}
	done := make(chan struct{})
	t.Cleanup(func() { require.NoError(t, l.Close()); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
