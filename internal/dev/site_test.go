package dev

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// With TLS, the printed URL has the configured name, for which the certificate was issued.
func TestAddress(t *testing.T) {
	t.Parallel()
	here, all := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8443}, &net.TCPAddr{IP: net.IPv6zero, Port: 8443}
	for _, c := range []struct {
		at     net.Addr
		listen string
		tls    bool
		want   string
	}{
		{here, "dev.example.com:8443", true, "https://dev.example.com:8443"},
		{here, "dev.example.com:0", true, "https://dev.example.com:8443"},
		{here, "dev.example.com:8443", false, "http://192.0.2.7:8443"},
		{here, "192.0.2.7:8443", true, "https://192.0.2.7:8443"},
		{all, ":8443", true, "https://127.0.0.1:8443"},
		{all, "0.0.0.0:8443", false, "http://127.0.0.1:8443"},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, "[::1]:1", true, "https://[::1]:1"},
	} {
		require.Equal(t, c.want, address(c.at, c.listen, c.tls), c.listen)
	}
}
