package settlement_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program links the client of the database that it imports, and no other one.
func TestLinksOnlyTheChosenDatabase(t *testing.T) {
	t.Parallel()
	clients := map[string]string{"postgres": "github.com/jackc/pgx/", "mysql": "github.com/go-sql-driver/mysql",
		"sqlite": "modernc.org/sqlite"}
	for _, chosen := range []string{"", "postgres", "mysql", "sqlite"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+chosen).Output()
		require.NoError(t, err)
		for database, client := range clients {
			require.Equal(t, database == chosen, strings.Contains(string(out), client), "settlement/%s links %s", chosen,
				client)
		}
	}
}
