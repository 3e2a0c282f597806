package ledger

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// adds are the statements that change nothing for a build that does not know of them: it reads and writes rows as before.
// A unique index, a foreign key or a CHECK of two columns could refuse its rows.
var adds = []*regexp.Regexp{
	regexp.MustCompile(`^CREATE TABLE \w+ \([^;]*$`),
	regexp.MustCompile(`^CREATE INDEX (IF NOT EXISTS )?\w+ ON \w+ \([^;]*$`),
	regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN \w+ [^,;]*\bDEFAULT [^,;]*$`),
	regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN \w+ (\w|[ "()])+$`), // with NULL
}

// onlyAdds returns an error if the previous release can't work with the step.
func onlyAdds(m *migration, previous int64) error {
	if m.lowest > previous {
		return fmt.Errorf("%s excludes the previous release (schema %d): its lowest is %d", m.name, previous, m.lowest)
	}
	script := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(m.script, "")
	for part := range strings.SplitSeq(script, ";\n") {
		part = strings.Join(strings.Fields(part), " ")
		known := part == ""
		for i, r := range adds {
			known = known || r.MatchString(part) && (i < 3 || !strings.Contains(part, "NOT NULL"))
		}
		if !known || strings.Contains(part, " REFERENCES ") {
			return fmt.Errorf("%s: the previous release may not be able to work with: %s", m.name, part)
		}
	}
	return nil
}

// previousSchema returns the version of the previous release's schema.
func previousSchema(t *testing.T) (version int64) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/test/previous.txt")
	require.NoError(t, err)
	_, line, _ := strings.Cut(string(text), "\nschema ")
	_, err = fmt.Sscan(line, &version)
	require.NoError(t, err, "previous.txt has no line \"schema VERSION\"")
	return version
}

// The previous release works with each later step, so that two releases can run side by side, and an upgrade has a way
// back.
func TestMigrationsOnlyAdd(t *testing.T) {
	t.Parallel()
	previous := previousSchema(t)
	for _, d := range []dialect{postgresDialect, mysqlDialect, sqliteDialect} {
		steps, err := loadMigrations(migrationFiles, d.migrations)
		require.NoError(t, err)
		require.GreaterOrEqual(t, int64(len(steps)), previous)
		for _, m := range steps[previous:] {
			require.NoError(t, onlyAdds(&m, previous), d.migrations)
		}
	}
	for _, script := range []string{
		"DROP TABLE code", "DROP INDEX grants_by_user", "ALTER TABLE code DROP COLUMN code", "UPDATE code SET code = 'x'",
		"ALTER TABLE code ADD COLUMN x bigint NOT NULL", "ALTER TABLE code ADD COLUMN x bigint DEFAULT 0, DROP COLUMN code",
		"ALTER TABLE code RENAME COLUMN code TO text", "ALTER TABLE code ADD CHECK (code <> '')",
		"CREATE UNIQUE INDEX x ON code (code)", "CREATE TABLE x (code text REFERENCES code (code))",
		"ALTER TABLE code ALTER COLUMN code TYPE bigint", "CREATE TRIGGER x BEFORE INSERT ON code BEGIN SELECT 1; END",
		"CREATE TABLE x (y text);\nDROP TABLE code",
	} {
		require.Error(t, onlyAdds(&migration{name: "planted", script: script + ";\n"}, previous), script)
	}
	require.NoError(t, onlyAdds(&migration{script: "ALTER TABLE code ADD COLUMN x bigint;\n"}, previous))
	require.ErrorContains(t, onlyAdds(&migration{lowest: previous + 1}, previous), "excludes the previous release")
}
