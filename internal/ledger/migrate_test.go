package ledger

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Each database has the same steps, in its own dialect.
func TestMigrationsOfEachDatabase(t *testing.T) {
	t.Parallel()
	names := func(d dialect) (list []string) {
		steps, err := loadMigrations(migrationFiles, d.migrations)
		require.NoError(t, err)
		for _, s := range steps {
			list = append(list, s.name)
		}
		return list
	}
	want := names(postgresDialect)
	require.NotEmpty(t, want)
	require.Equal(t, want, names(mysqlDialect))
	require.Equal(t, want, names(sqliteDialect))
}

// beforeFences returns a database whose search path includes schema "later". While the migrations have not created
// table fence, settlers find it in that schema.
func beforeFences(t *testing.T) Config {
	config := postgresConfig(t)
	u, err := url.Parse(config.DSN)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", "public,later")
	u.RawQuery = q.Encode()
	config.DSN = u.String()
	return config
}

// toVersion4 takes a ledger back to version 4 of the schema. It moves table fence to schema "later", because settlers
// of this build read the table.
func toVersion4(t *testing.T, f *fixture) {
	t.Helper()
	f.tamper(t, stmt{sql: `DELETE FROM hongbao_schema WHERE version > 4`},
		stmt{sql: `DROP TABLE archive, archive_shard, control, acknowledged, topic_base, archive_copy, seal_seqs`},
		stmt{sql: `ALTER TABLE account DROP COLUMN base`}, stmt{sql: `ALTER TABLE seal DROP COLUMN based`},
		stmt{sql: `CREATE SCHEMA later`}, stmt{sql: `ALTER TABLE fence SET SCHEMA later`},
		stmt{sql: `ALTER TABLE campaign DROP COLUMN loading_at`},
		stmt{sql: `ALTER TABLE api_key DROP COLUMN sponsors, DROP COLUMN largest_total, DROP COLUMN client`},
		stmt{sql: `DROP INDEX grants_by_campaign_user`}, stmt{sql: `CREATE INDEX grants_by_user ON grants (user_id, campaign)`})
}

// Several migrations at once create an index while settlers write to its table. They replace an invalid index that a
// killed migration has left.
func TestPostgresIndexIsMadeBesideWriters(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"nothing", "an invalid index", "the index"} {
		t.Run(left, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, beforeFences(t))
			f.create(t, "rain", 100)
			f.settles(t, grantsOf("rain", 1, 50)...)
			toVersion4(t, f)
			switch left {
			case "an invalid index":
				conn, err := pgx.Connect(t.Context(), f.config.DSN)
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), `CREATE UNIQUE INDEX CONCURRENTLY grants_by_campaign_user ON grants (campaign)`)
				require.ErrorContains(t, err, "23505", "it fails, and leaves an invalid index")
				require.NoError(t, conn.Close(t.Context()))
			case "the index":
				f.tamper(t, stmt{sql: `CREATE INDEX grants_by_campaign_user ON grants (campaign, user_id)`})
			}
			var group errgroup.Group
			for range 3 {
				group.Go(func() error {
					_, err := Migrate(t.Context(), f.config)
					return err
				})
			}
			for p := int64(51); p <= 100; p++ {
				f.settles(t, grant("rain", p))
			}
			require.NoError(t, group.Wait())
			again, err := Migrate(t.Context(), f.config)
			require.NoError(t, err)
			require.Empty(t, again)
			valid, _, err := rowQuery[int64]{"ask", `SELECT COUNT(*) FROM pg_index WHERE indisvalid AND NOT indisunique
				AND indexrelid = to_regclass('grants_by_campaign_user')`, nil, number}.one(t.Context(), f.ledger)
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
	f := newFixture(t, beforeFences(t))
	f.create(t, "rain", 10)
	f.settles(t, grant("rain", 1))
	toVersion4(t, f)
	conn, err := pgx.Connect(t.Context(), f.config.DSN)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	open, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), `UPDATE grants SET epoch = epoch`)
	require.NoError(t, err)
	var group errgroup.Group
	group.Go(func() error {
		_, err := Migrate(t.Context(), f.config)
		return err
	})
	testkit.Eventually(t, 30*time.Second, func() bool {
		n, _, err := rowQuery[int64]{"ask", `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE '%INDEX%grants_by_campaign_user%' AND wait_event_type = 'Lock'`, nil, number}.one(t.Context(), f.ledger)
		return err == nil && n == 1
	}, "the migration waits")
	quick, cancel := context.WithTimeout(t.Context(), f.config.LockTimeout/2)
	defer cancel()
	require.Nil(t, f.Handle(quick, grantsOf("rain", 2, 5)), "the settler must not wait for the migration")
	require.NoError(t, open.Commit(t.Context()))
	require.NoError(t, group.Wait())
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}

// Step 5 was rewritten and keeps its released checksum, which existing databases have.
func TestReleasedSumsStay(t *testing.T) {
	t.Parallel()
	steps, err := loadMigrations(migrationFiles, postgresDialect.migrations)
	require.NoError(t, err)
	require.Equal(t, "690cbcfa4f59f026ab7da1eadc612ffd5ec8c3c172f0e82ab45f59a4d7debf22", steps[4].sum)
	require.Equal(t, "grants_by_campaign_user ON grants (campaign, user_id)", steps[4].index)
	for _, s := range steps[:4] {
		require.Empty(t, s.index)
	}
}
