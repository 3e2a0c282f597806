package bank

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// One client that sends its bodies slowly takes no more than its half of balance.in_flight, so the others are served.
func TestOneClientStarvesNoOther(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) {
		c.InFlight, c.ReadTimeout, c.HandleTimeout, c.WriteTimeout = 4, time.Minute, time.Minute, 2*time.Minute
	})
	for range 4 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/credits HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n{", clientText)
		require.NoError(t, err)
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		return s.logs.FilterMessage("a request was refused").Len()+
			s.logs.FilterMessage("a request failed").Len() == 2
	}, "half of the slots are the client's, and two requests were refused")
	require.Len(t, s.balance.slots, 2)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good, as(theirText)).Status)
}

// Connections above balance.connections wait, so that they take no memory.
func TestConnectionsHaveABound(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.Connections = 1 })
	address := strings.TrimPrefix(s.url, "http://")
	first, err := net.Dial("tcp", address)
	require.NoError(t, err)
	const ask = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	_, err = io.WriteString(first, ask)
	require.NoError(t, err)
	_, err = bufio.NewReader(first).ReadString('\n')
	require.NoError(t, err)
	second, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer second.Close()
	_, err = io.WriteString(second, ask)
	require.NoError(t, err)
	require.NoError(t, second.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = second.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, first.Close())
	require.NoError(t, second.SetReadDeadline(time.Now().Add(20*time.Second)))
	answer, err := bufio.NewReader(second).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, answer, "200")
}
