package ledger

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// forgetful returns the address of a pooler in front of a PostgreSQL, which forgets the settings that a client asks for
// when it connects, as PgBouncer does with ignore_startup_parameters.
func forgetful(t *testing.T, server string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	testkit.Go(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = listener.Close() })
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { _ = client.Close() })
			go forget(client, server)
		}
	})
	return listener.Addr().String()
}

func forget(client net.Conn, server string) {
	defer client.Close()
	first, err := pgproto3.NewBackend(client, client).ReceiveStartupMessage()
	if err != nil {
		return
	}
	if start, ok := first.(*pgproto3.StartupMessage); ok {
		start.Parameters = map[string]string{"user": start.Parameters["user"], "database": start.Parameters["database"]}
	}
	text, err := first.Encode(nil)
	if err != nil {
		return
	}
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer upstream.Close()
	if _, err := upstream.Write(text); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.Close()
	}()
	_, _ = io.Copy(client, upstream)
}

// Behind a pooler that forgets the timeouts a stalled worker would hold its locks permanently. The ledger is refused,
// unless the user has the timeouts.
func TestPostgresNeedsItsTimeouts(t *testing.T) {
	t.Parallel()
	direct := postgresConfig(t)
	open(t, direct)
	u, err := url.Parse(direct.dsn())
	require.NoError(t, err)
	u.Host = forgetful(t, u.Host)
	config := direct
	config = config.at(u.String())
	_, err = Open(t.Context(), config)
	for _, setting := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		require.ErrorContains(t, err, setting+" is 0s")
	}
	var refused *db.SettingError
	require.ErrorAs(t, err, &refused)

	admin := connect(t, direct.dsn())
	for _, set := range []string{"lock_timeout = '3s'", "statement_timeout = '30s'",
		"idle_in_transaction_session_timeout = '30s'"} {
		_, err := admin.Exec(t.Context(), "ALTER DATABASE "+u.Path[1:]+" SET "+set)
		require.NoError(t, err)
	}
	l, err := Open(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
