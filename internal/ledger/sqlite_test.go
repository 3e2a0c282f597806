package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// TestSQLiteBusy settles while another connection has the write lock, as another process might.
func TestSQLiteBusy(t *testing.T) {
	t.Parallel()
	config := sqliteConfig(t)
	config.LockTimeout, config.Retries = 5*time.Millisecond, 2
	f := newFixture(t, config)
	f.create(t, "rain", 10)
	other := open(t, config)
	err := other.tables.Store.Write(t.Context(), func(db.Txn) ([]db.Stmt, error) {
		errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5)))
		require.Len(t, errs, 5)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]), "%v", errs[0])
		require.True(t, hongbao.IsOutage(errs[0]))
		f.holds(t, "rain", nil) // readers do not wait
		return nil, nil
	})
	require.NoError(t, err)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// TestSQLiteFull stops the file from growing. The settler reports an outage, and no part of the batch is written.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqliteConfig(t))
	f.create(t, "rain", 5_000)
	f.tamper(t, db.Stmt{SQL: "PRAGMA max_page_count = 30"}) // of the one connection that writes
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 5_000)))
	require.Len(t, errs, 5_000)
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]))
	f.holds(t, "rain", nil)
	f.tamper(t, db.Stmt{SQL: "PRAGMA max_page_count = 1000000"})
	f.settles(t, grantsOf("rain", 1, 5_000)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5_000))
}

func TestSQLiteDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	require.NoError(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	_, err := Open(t.Context(), testConfig(sqlite.Database{Path: path}))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, path)
	none := testConfig(sqlite.Database{Path: filepath.Join(t.TempDir(), "no", "such", "folder.db")})
	_, err = Migrate(t.Context(), none)
	require.True(t, hongbao.IsOutage(err), "%v", err)
	_, err = Open(t.Context(), none)
	require.ErrorIs(t, err, ErrNotInitialized)
}

// The file has seeds and coupon codes, so only its owner may read it. SQLite gives its other files the same mode.
func TestSQLiteFilesArePrivate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqliteConfig(t))
	f.create(t, "rain", 1)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(f.config.dsn()), "*"))
	require.NoError(t, err)
	require.Len(t, files, 3, "the file, -wal and -shm")
	for _, name := range files {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}
