package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each database has the same steps, in its own words.
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
