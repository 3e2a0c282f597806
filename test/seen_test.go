package test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The statements of docs/subscribers.md and its Chinese page, as a reader would copy them, do not mix up users whose ids
// differ only in case. A copy of a record changes nothing.
func TestSeenStatementsOfTheDocs(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../docs/subscribers.md", "../docs/zh/subscribers.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		require.Greater(t, len(blocks), 1)
		postgres, mysql := blocks[0][1], blocks[1][1]
		require.Contains(t, postgres, "-- PostgreSQL")
		require.Contains(t, mysql, "MySQL")
		seen(t, "pgx", testkit.Postgres(t), postgres)
		seen(t, "mysql", testkit.MariaDB(t), mysql)
	}
}

// seen executes a block of statements for two users and two packets, each twice.
func seen(t *testing.T, driver, dsn, block string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer db.Close()
	tables, effect, ok := strings.Cut(regexp.MustCompile(`--.*`).ReplaceAllString(block, ""), "BEGIN;")
	require.True(t, ok)
	exec := func(statements string) (changed int64) {
		for i, s := range strings.Split(statements, ";") {
			if s = strings.TrimSpace(s); s == "" || s == "COMMIT" {
				continue
			}
			res, err := db.ExecContext(t.Context(), s)
			require.NoError(t, err, s)
			if i > 0 || strings.HasPrefix(s, "CREATE") {
				continue
			}
			if changed, err = res.RowsAffected(); changed == 0 {
				require.NoError(t, err)
				return 0 // a copy
			}
		}
		return changed
	}
	exec(tables)
	if !strings.Contains(tables, "points") {
		exec("CREATE TABLE points (user_id varchar(128) PRIMARY KEY, n bigint NOT NULL);" +
			"INSERT INTO points VALUES ('aB3x', 0), ('Ab3X', 0)")
	}
	for packet, user := range map[string]string{"4711": "aB3x", "4712": "Ab3X"} {
		for want := int64(1); want >= 0; want-- { // the record, and its copy
			require.Equal(t, want, exec(strings.NewReplacer("'u1'", "'"+user+"'", "4711", packet).Replace(effect)))
		}
	}
	for _, user := range []string{"aB3x", "Ab3X"} {
		var n int64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM points WHERE user_id = '"+user+"'").Scan(&n), user)
		require.EqualValues(t, 888, n, "%s on %s", user, driver)
	}
}
