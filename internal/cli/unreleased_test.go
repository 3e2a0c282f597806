package cli

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// unreleasedSteps are the migrations of a build before the first release, 67cb9844. Its tables were the same ones.
var unreleasedSteps = []string{"0001_ledger.sql", "0002_access.sql", "0003_closes.sql", "0004_topup.sql", "0005_archive.sql",
	"0006_control.sql", "0007_decisions.sql", "0008_fence.sql", "0009_clients.sql", "0010_base.sql"}

// makeUnreleased turns a ledger into one of such a build.
func makeUnreleased(t *testing.T, driver, dsn string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "DELETE FROM hongbao_schema")
	for i, name := range unreleasedSteps {
		_, failed := db.ExecContext(t.Context(), `INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at)
			VALUES ($1, $2, 'x', $3, 1)`, i+1, name, min(i+1, 5))
		err = errors.Join(err, failed)
	}
	require.NoError(t, errors.Join(err, db.Close()))
}

// noReaders are commands that refuse the data of such a build. Those that would run on come last.
var noReaders = [][]string{{"init"}, {"audit"}, {"campaign", "load", "rain"}, {"config", "check", "--connect"}, {"doctor"},
	{"work"}}

// Redis has the keys of a build before the first release: its mark is 1/1. Each command refuses them, names them, and
// writes nothing, also no table of the ledger.
func TestUnreleasedRedisIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 5, 50)
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Deployment(), "schema", 1, "lowest", 1).Err())
	before := d.content()
	d.set("LEDGER_DSN", d.dsn+".new")
	serve := []string{"serve", "--serve.ops_listen=" + testkit.FreeAddr(t), "--serve.listen=" + testkit.FreeAddr(t)}
	control := []string{"control", "--control.ops_listen=127.0.0.1:0", "--control.listen=127.0.0.1:0"}
	for _, command := range append(slices.Clone(noReaders), serve, control) {
		r := d.run(command...)
		require.NotZero(t, r.code, command)
		for _, part := range []string{"redis at ", "redis key " + d.store.Deployment() + " has schema version 1",
			"before the first release, which no release reads", "Choose another deployment.id and deployment.key_prefix",
			`delete the keys that begin with "` + d.store.Space().Prefix + `:"`} {
			require.Contains(t, r.out+r.err, part, command)
		}
		require.Equal(t, before, d.content(), "%s wrote to Redis", command)
		require.NoFileExists(t, d.dsn+".new", "%s made a ledger", command)
	}
}

// The ledger has the tables of a build before the first release. Each command refuses it, names it without its password,
// and writes nothing, also not to Redis.
func TestUnreleasedLedgerIsRefused(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"sqlite", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: driver == "pgx"})
			d.campaign("rain", 5, 50)
			makeUnreleased(t, driver, d.dsn)
			before := d.content()
			for _, command := range append([][]string{{"balance", "migrate"}, {"balance", "funds"}, {"campaign", "list"}},
				noReaders...) {
				r := d.run(command...)
				require.NotZero(t, r.code, command)
				for _, part := range []string{"the ledger ", "those of a build before the first release, which no release reads",
					"schema version 10 (0010_base.sql)", "releases begin with version 12", "Let ledger.dsn name an empty database"} {
					require.Contains(t, r.out+r.err, part, command)
				}
				if driver == "sqlite" {
					require.Contains(t, r.out+r.err, "the ledger sqlite "+d.dsn, command)
				}
				require.Equal(t, before, d.content(), "%s wrote to Redis", command)
			}
		})
	}
}

// The folder of `hongbao dev` has the data of a build before the first release. It is refused before any server starts,
// and no file changes.
func TestUnreleasedFolderIsRefused(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	folder := filepath.Join(t.TempDir(), "kept")
	first := startDev(t, []string{"TMPDIR=" + tmp}, "--data-dir", folder)
	first.end(syscall.SIGINT)
	kept, err := testkit.StartRedis(t.Context(), testkit.RedisOptions{Dir: filepath.Join(folder, "redis")})
	require.NoError(t, err)
	changed := kept.Client(t).HSet(t.Context(), "hb:{deployment}", "schema", 1, "lowest", 1)
	require.NoError(t, errors.Join(changed.Err(), kept.Close()))
	require.Zero(t, changed.Val(), "the folder's Redis has both fields")
	makeUnreleased(t, "sqlite", filepath.Join(folder, "ledger.db"))
	before := sumsIn(t, folder)
	r := runProgram(t, []string{"TMPDIR=" + tmp}, "dev", "--listen", "127.0.0.1:0", "--data-dir", folder)
	require.Equal(t, 2, r.code, r.err)
	require.Contains(t, r.err, "--data-dir: "+folder+" has the data of a build before the first release, which no release "+
		"reads: name a new folder, or delete this one")
	require.Contains(t, r.err, "schema version 10 (0010_base.sql)")
	require.Equal(t, before, sumsIn(t, folder))
}

// sumsIn returns the hash of each file in a folder.
func sumsIn(t *testing.T, folder string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	}))
	return sums
}
