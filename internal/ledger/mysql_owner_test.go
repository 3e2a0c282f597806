package ledger

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// ownMariaDB returns an empty database on a server of its own, and the address of the database for a user who may create
// users.
func ownMariaDB(t *testing.T) (db *sql.DB, dsn string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{})
	dsn = server.AdminDSN(server.Database(t))
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, dsn
}

// On a server without the roles of deploy/rights/mysql.sql, a migration grants nothing and creates no users, although
// its user may create users.
func TestMigrateWithoutRoles(t *testing.T) {
	t.Parallel()
	db, dsn := ownMariaDB(t)
	accounts := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'hongbao%'`).Scan(&n))
		return n
	}
	before := accounts()
	_, err := Migrate(t.Context(), testMariaDB(dsn))
	require.NoError(t, err)
	require.Equal(t, before, accounts())
}

// A server has only two of the roles. Each gets all its rights, and the migration does not fail.
func TestMigrateWithoutOneRole(t *testing.T) {
	t.Parallel()
	db, dsn := ownMariaDB(t)
	roles := []string{"hongbao_control", "hongbao_work", "hongbao_serve"}
	for _, role := range roles {
		_, err := db.ExecContext(t.Context(), "CREATE ROLE "+role)
		require.NoError(t, err)
	}
	rights := func(role string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM mysql.tables_priv
			WHERE db = DATABASE() AND user = ?) + (SELECT COUNT(*) FROM mysql.columns_priv
			WHERE db = DATABASE() AND user = ?)`, role, role).Scan(&n))
		return n
	}
	migrated := func() (has map[string]int) {
		_, err := Migrate(t.Context(), testMariaDB(dsn))
		require.NoError(t, err)
		has = map[string]int{}
		for _, role := range roles {
			has[role] = rights(role)
		}
		return has
	}
	all := migrated()
	for _, missing := range roles {
		for _, role := range roles {
			_, err := db.ExecContext(t.Context(), "DROP ROLE "+role)
			require.NoError(t, err)
			require.Zero(t, rights(role))
		}
		want := map[string]int{missing: 0}
		for _, role := range roles {
			if role == missing {
				continue
			}
			_, err := db.ExecContext(t.Context(), "CREATE ROLE "+role)
			require.NoError(t, err)
			require.NotZero(t, all[role])
			want[role] = all[role]
		}
		require.Equal(t, want, migrated(), "without %s", missing)
		_, err := db.ExecContext(t.Context(), "CREATE ROLE "+missing)
		require.NoError(t, err)
	}
}
