package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Each database has the same steps, in its own dialect.
func TestMigrationsOfEachDatabase(t *testing.T) {
	t.Parallel()
	names := func(d *db.Dialect) (list []string) {
		steps := d.Migrations
		for _, s := range steps {
			list = append(list, s.Name)
		}
		return list
	}
	want := names(postgres.Database{}.Dialect())
	require.NotEmpty(t, want)
	require.Equal(t, want, names(mysql.Database{}.Dialect()))
	require.Equal(t, want, names(sqlite.Database{}.Dialect()))
}

// withNext returns the steps of this build, and a next step with this script.
func withNext(t *testing.T, d *db.Dialect, script string) []db.Step {
	t.Helper()
	steps := d.Migrations
	files := fstest.MapFS{fmt.Sprintf("%04d_next.sql", db.Newest(steps)+1): {Data: []byte(script)}}
	for _, m := range steps {
		files[m.Name] = &fstest.MapFile{Data: []byte(m.Script)}
	}
	steps, err := db.LoadSteps(files, ".")
	require.NoError(t, err)
	return steps
}

// nextIndex is the script of a step that adds an index to a large table.
const nextIndex = `-- lowest: 12
-- index: grants_by_epoch ON grants (epoch)
CREATE INDEX IF NOT EXISTS grants_by_epoch ON grants (epoch);
`

// applies runs the steps as a process of its own, and returns the names of those that were missing.
func (f *fixture) applies(ctx context.Context, steps []db.Step) (done []string, err error) {
	l, err := reach(ctx, f.config, true)
	if err != nil {
		return nil, err
	}
	done, err = l.apply(ctx, steps)
	return done, errors.Join(err, l.tables.Store.Close())
}

// Several migrations at once create an index while settlers write to its table. They replace an invalid index that a
// killed migration has left.
func TestPostgresIndexIsMadeBesideWriters(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"nothing", "an invalid index", "the index"} {
		t.Run(left, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, postgresConfig(t))
			f.create(t, "rain", 100)
			f.settles(t, grantsOf("rain", 1, 50)...)
			steps := withNext(t, postgres.Database{}.Dialect(), nextIndex)
			switch left {
			case "an invalid index":
				conn, err := pgx.Connect(t.Context(), f.config.dsn())
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), `CREATE UNIQUE INDEX CONCURRENTLY grants_by_epoch ON grants (epoch)`)
				require.ErrorContains(t, err, "23505", "it fails, and leaves an invalid index")
				require.NoError(t, conn.Close(t.Context()))
			case "the index":
				f.tamper(t, db.Stmt{SQL: `CREATE INDEX grants_by_epoch ON grants (epoch)`})
			}
			var group errgroup.Group
			for range 3 {
				group.Go(func() error {
					_, err := f.applies(t.Context(), steps)
					return err
				})
			}
			for p := int64(51); p <= 100; p++ {
				f.settles(t, grant("rain", p))
			}
			require.NoError(t, group.Wait())
			again, err := f.applies(t.Context(), steps)
			require.NoError(t, err)
			require.Empty(t, again)
			valid, _, err := tables.Ask("ask", `SELECT COUNT(*) FROM pg_index WHERE indisvalid AND NOT indisunique
				AND indexrelid = to_regclass('grants_by_epoch')`, nil, tables.Number).One(t.Context(), f.ledger.tables)
			require.NoError(t, err)
			require.EqualValues(t, 1, valid)
			l, err := Open(t.Context(), f.config)
			require.NoError(t, err)
			require.NoError(t, l.Close())
			f.holds(t, "rain", grantsOf("rain", 1, 100))
		})
	}
}

// While a migration waits for a transaction that has written to the table, other transactions can write.
func TestPostgresIndexBlocksNoWriter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	f.settles(t, grant("rain", 1))
	steps := withNext(t, postgres.Database{}.Dialect(), nextIndex)
	conn, err := pgx.Connect(t.Context(), f.config.dsn())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	open, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), `UPDATE grants SET epoch = epoch`)
	require.NoError(t, err)
	var group errgroup.Group
	group.Go(func() error {
		_, err := f.applies(t.Context(), steps)
		return err
	})
	testkit.Eventually(t, 30*time.Second, func() bool {
		n, _, err := tables.Ask("ask", `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE '%INDEX%grants_by_epoch%' AND wait_event_type = 'Lock'`, nil, tables.Number).One(t.Context(), f.ledger.tables)
		return err == nil && n == 1
	}, "the migration waits")
	quick, cancel := context.WithTimeout(t.Context(), f.config.LockTimeout/2)
	defer cancel()
	require.Nil(t, f.Handle(quick, testkit.Batch(grantsOf("rain", 2, 5))), "the settler must not wait for the migration")
	require.NoError(t, open.Commit(t.Context()))
	require.NoError(t, group.Wait())
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// The head of a script names the lowest version, and may name a released checksum and an index. The first file may have
// any number, each later one the next number.
func TestHeadsOfMigrations(t *testing.T) {
	t.Parallel()
	load := func(scripts map[string]string) ([]db.Step, error) {
		files := fstest.MapFS{}
		for name, script := range scripts {
			files[name] = &fstest.MapFile{Data: []byte(script)}
		}
		return db.LoadSteps(files, ".")
	}
	steps, err := load(map[string]string{"0007_a.sql": "-- lowest: 7\n", "0008_b.sql": "-- lowest: 7\n-- sum: abc\n-- index: i ON t (c)\n"})
	require.NoError(t, err)
	require.Equal(t, "abc", steps[1].Sum)
	require.Equal(t, "i ON t (c)", steps[1].Index)
	require.EqualValues(t, 7, steps[1].Lowest)
	require.Len(t, steps[0].Sum, 64)
	require.Empty(t, steps[0].Index)
	for want, scripts := range map[string]map[string]string{
		"0009_b.sql: want the number 0008": {"0007_a.sql": "-- lowest: 7\n", "0009_b.sql": "-- lowest: 7\n"},
		"want the number 0001":             {"a.sql": "-- lowest: 7\n"},
		"want \"-- lowest: VERSION\"":      {"0007_a.sql": "CREATE TABLE t (c text);\n"},
	} {
		_, err := load(scripts)
		require.ErrorContains(t, err, want)
	}
}
