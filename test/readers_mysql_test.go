package test

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// pageSQL returns the last SQL block of a page whose first line has the word, with its statements separated.
func pageSQL(t *testing.T, page, word string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	require.NoError(t, err)
	for _, block := range strings.Split(string(text), "```sql\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if first, _, _ := strings.Cut(block, "\n"); !strings.Contains(first, word) {
			continue
		}
		list = nil
		for _, line := range strings.Split(block, "\n") {
			if !strings.HasPrefix(line, "--") {
				list = append(list, line)
			}
		}
		list = strings.Split(strings.Join(list, "\n"), ";")
	}
	return list
}

// The SQL of the page keeps users and campaigns apart whose ids differ only in case, also on MariaDB, and drops a copy.
func TestReadersTablesOnMariaDB(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for _, page := range []string{"subscribers.md", "zh/subscribers.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("mysql", testkit.MariaDB(t))
			require.NoError(t, err)
			defer db.Close()
			var once, each []string // CREATE TABLE; the statements of a grant
			for _, statement := range pageSQL(t, page, "MySQL") {
				switch s := strings.TrimSpace(statement); {
				case strings.HasPrefix(s, "CREATE"):
					once = append(once, s)
				case strings.HasPrefix(s, "INSERT"):
					each = append(each, s)
				}
			}
			require.Len(t, each, 2)
			for _, s := range once {
				_, err := db.ExecContext(t.Context(), s)
				require.NoError(t, err)
			}
			for _, g := range [][3]string{{"spring", "4711", "aB3x"}, {"spring", "4712", "Ab3X"}, {"Spring", "4711", "Ab3X"},
				{"spring", "4711", "aB3x"}} {
				of := strings.NewReplacer("'spring'", "'"+g[0]+"'", "4711", g[1], "'u1'", "'"+g[2]+"'")
				inserted, err := db.ExecContext(t.Context(), of.Replace(each[0]))
				require.NoError(t, err)
				if n, err := inserted.RowsAffected(); err == nil && n == 1 {
					_, err = db.ExecContext(t.Context(), of.Replace(each[1]))
					require.NoError(t, err)
				}
			}
			points := map[string]int64{}
			rows, err := db.QueryContext(t.Context(), "SELECT user_id, n FROM points")
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var user string
				var n int64
				require.NoError(t, rows.Scan(&user, &n))
				points[user] = n
			}
			require.NoError(t, rows.Err())
			require.Equal(t, map[string]int64{"aB3x": 888, "Ab3X": 1776}, points)
		})
	}
}
