package test

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// startMariaDB starts a MariaDB or MySQL with the roles of deploy/rights/mysql.sql. It creates a user with each role,
// as docs/operations.md describes, and returns a connection of the administrator.
func (g *guarded) startMariaDB() *sql.DB {
	g.t.Helper()
	server := testkit.NewMariaDB(g.t, testkit.MariaDBOptions{Settings: map[string]string{"innodb_doublewrite": "on"}})
	root := server.AdminDSN("")
	g.driver, g.dsn = "mysql", func(role string) string {
		return strings.Replace(server.AdminDSN("hongbao"), "root@", strings.Replace(role, "hongbao_", "", 1)+":x@", 1)
	}
	admin := g.mysql(root)
	g.sessions = func(role string) (n int) {
		require.NoError(g.t, admin.QueryRowContext(g.t.Context(), `SELECT count(*) FROM information_schema.processlist WHERE user = ?`,
			strings.Replace(role, "hongbao_", "", 1)).Scan(&n))
		return n
	}
	text, err := os.ReadFile("../rights/mysql.sql")
	require.NoError(g.t, err)
	do := func(statements string) {
		_, err := admin.ExecContext(g.t.Context(), statements)
		require.NoError(g.t, err)
	}
	do("CREATE DATABASE hongbao; " + string(text))
	do("RENAME USER hongbao_owner TO owner; ALTER USER owner IDENTIFIED BY 'x' ACCOUNT UNLOCK")
	to := " FOR "
	if testkit.OnMySQL() {
		to = " TO "
	}
	for _, role := range roles {
		user := strings.Replace(role, "hongbao_", "", 1)
		do("CREATE USER " + user + " IDENTIFIED BY 'x'; GRANT " + role + " TO " + user)
		do("SET DEFAULT ROLE " + role + to + user)
	}
	return admin
}

func (g *guarded) mysql(dsn string) *sql.DB {
	g.t.Helper()
	db, err := sql.Open("mysql", dsn+"?multiStatements=true")
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestRights on MariaDB.
func TestRightsOnMariaDB(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	admin := g.startMariaDB()
	owner := g.env("init", "hongbao_owner")
	run(t, owner, "init")
	_, err := admin.ExecContext(t.Context(), `REVOKE SELECT, INSERT ON hongbao.account FROM hongbao_work`) // as a new table
	require.NoError(t, err)
	run(t, owner, "init")
	g.live()
	for i, role := range roles {
		db := g.mysql(g.dsn(role))
		g.denied(i, "denied", func(statement string) error {
			_, err := db.ExecContext(t.Context(), strings.Replace(statement, "ON CONFLICT (id) DO NOTHING",
				"ON DUPLICATE KEY UPDATE id = journal.id", 1))
			return err
		})
	}
}
