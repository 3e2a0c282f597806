package serve

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial opens a connection, sends a request on it and reports whether the server answers.
func (s *server) dial(t *testing.T) (conn net.Conn, answers bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, "GET /v1/campaigns/c HTTP/1.1\r\nHost: x\r\n\r\n")
	if err != nil {
		return conn, false
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		require.NotErrorIs(t, err, io.ErrNoProgress)
		return conn, false
	}
	require.NoError(t, res.Body.Close())
	return conn, res.StatusCode == http.StatusOK
}

// An address can open connections up to the limit, and another one only after closing one.
func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.AddressConnections = 2 }})
	first, ok := s.dial(t)
	require.True(t, ok)
	_, ok = s.dial(t)
	require.True(t, ok)
	for range 3 {
		_, ok = s.dial(t)
		require.False(t, ok, "the third connection from this address")
	}
	require.NotZero(t, s.logs.FilterMessageSnippet("serve.address_connections").Len())
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { _, ok := s.dial(t); return ok }, 30*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 2, s.connections("listen"))
}

// Trusted proxies may open any number of connections, and so may every address if there is no limit.
func TestConnectionsOfAProxy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"a trusted proxy": func(c *Config) { c.AddressConnections, c.TrustedProxies = 1, []string{"127.0.0.0/8"} },
		"no bound":        func(c *Config) { c.AddressConnections = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, options{cfg: change})
			for range 5 {
				_, ok := s.dial(t)
				require.True(t, ok)
			}
			require.EqualValues(t, 5, s.connections("listen"))
			s.stop()
			require.Zero(t, s.connections("listen"), "each connection is counted until it is closed")
		})
	}
}
