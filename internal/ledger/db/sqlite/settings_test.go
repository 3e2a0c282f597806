package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

var limits = db.Limits{Conns: 8, ConnectTimeout: 5 * time.Second, LockTimeout: 10 * time.Second,
	Timeout: 30 * time.Second}

// open creates a file, and opens it as a worker does.
func open(t *testing.T) *store {
	t.Helper()
	d := Database{Path: filepath.Join(t.TempDir(), "ledger ?#%.db")}
	made, err := d.Open(t.Context(), limits, true)
	require.NoError(t, err)
	require.NoError(t, made.Close())
	opened, err := d.Open(t.Context(), limits, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	return opened.(*store)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.Equal(t, 1, s.writer.Stats().MaxOpenConnections)
	require.Equal(t, limits.Conns, s.readers.Stats().MaxOpenConnections)
	var has settings
	for _, pool := range []*sql.DB{s.writer, s.readers} {
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, readPragmas(t.Context(), conn, &has))
		require.NoError(t, conn.Close())
		require.Equal(t, settings{journal: "wal", synchronous: 2, foreignKeys: 1,
			timeout: limits.LockTimeout.Milliseconds()}, has)
		require.Empty(t, has.problems())
	}
}

// TestRefused sets unsafe settings on a real connection (F39).
func TestRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.readers.SetMaxIdleConns(0) // other connections would block the change of journal_mode
	conn, err := s.writer.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, pragma := range []string{"synchronous=NORMAL", "foreign_keys=0", "busy_timeout=0", "journal_mode=DELETE"} {
		_, err := conn.ExecContext(t.Context(), "PRAGMA "+pragma)
		require.NoError(t, err)
	}
	var has settings
	require.NoError(t, readPragmas(t.Context(), conn, &has))
	err = db.Refuse(has.problems(), nil)
	for _, setting := range []string{"journal_mode is delete", "synchronous is 1", "foreign_keys is 0",
		"busy_timeout is 0"} {
		require.ErrorContains(t, err, setting)
	}
}
