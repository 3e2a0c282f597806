package ledger

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// TestMariaDBFoundRows runs the cases with repeated calls behind a proxy that sets the client flag CLIENT_FOUND_ROWS,
// as ProxySQL can. With this flag an insert that finds an existing row counts the row as affected, even if it does not
// change the row.
func TestMariaDBFoundRows(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a repeat changes nothing", "altered replays (F37)", "overlapping settlers",
		"credits that may be booked at a remote", "only one worker begins a credit",
		"a credit is booked once", "credits in one call", "a used key or reference",
		"concurrent credits", "a fund is filled once",
		"a campaign is created once", "a campaign is created concurrently",
		"a ledger is initialized once", "a ledger is initialized concurrently",
		"a request is done once", "a request is repeated while it runs", "concurrent requests with one key",
		"decisions pay a user once for a packet", "concurrent decisions",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, cases, name)
			cases[name](t, newFixture(t, foundRowsConfig(t)))
		})
	}
}

// foundRowsConfig is mariadbConfig with connections through foundRowsProxy.
func foundRowsConfig(t testing.TB) Config {
	dsn, err := mysql.ParseDSN(testkit.MariaDB(t))
	require.NoError(t, err)
	return testMariaDB(fmt.Sprintf("%s@tcp(%s)/%s", dsn.User, foundRowsProxy(t, dsn.Addr), dsn.DBName))
}

// foundRowsProxy passes connections on to a MySQL server, and sets CLIENT_FOUND_ROWS in each client's first packet.
func foundRowsProxy(t testing.TB, server string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var links sync.WaitGroup
	links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			links.Go(func() { passFoundRows(client, server) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		links.Wait() // ends, because the ledger was closed first: cleanups run in reverse order
	})
	return listener.Addr().String()
}

func passFoundRows(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer answers.Wait()
	defer server.Close()
	first := make([]byte, 8) // 3 bytes of length, 1 of sequence, 4 of capabilities
	if _, err := io.ReadFull(client, first); err != nil {
		return
	}
	const clientFoundRows = 2
	binary.LittleEndian.PutUint32(first[4:], binary.LittleEndian.Uint32(first[4:])|clientFoundRows)
	if _, err := server.Write(first); err == nil {
		_, _ = io.Copy(server, client)
	}
}
