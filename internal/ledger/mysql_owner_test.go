package ledger

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// On a server without the roles of deploy/rights/mysql.sql, a migration grants nothing and creates no users, although
// its user may create users.
func TestMigrateWithoutRoles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{})
	dsn := server.AdminDSN(server.Database(t))
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	accounts := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'hongbao%'`).Scan(&n))
		return n
	}
	before := accounts()
	_, err = Migrate(t.Context(), testMariaDB(dsn))
	require.NoError(t, err)
	require.Equal(t, before, accounts())
}
