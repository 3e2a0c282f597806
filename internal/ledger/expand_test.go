package ledger

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
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
func onlyAdds(m *db.Step, previous int64) error {
	if m.Lowest > previous {
		return fmt.Errorf("%s excludes the previous release (schema %d): its lowest is %d", m.Name, previous, m.Lowest)
	}
	script := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(m.Script, "")
	for part := range strings.SplitSeq(script, ";\n") {
		part = strings.Join(strings.Fields(part), " ")
		known := part == ""
		for i, r := range adds {
			known = known || r.MatchString(part) && (i < 3 || !strings.Contains(part, "NOT NULL"))
		}
		if !known || strings.Contains(part, " REFERENCES ") {
			return fmt.Errorf("%s: the previous release may not be able to work with: %s", m.Name, part)
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

// laterOnlyAdd returns an error if the previous release can't work with a step after its own.
func laterOnlyAdd(steps []db.Step, previous int64) error {
	if steps[0].Version > previous {
		return fmt.Errorf("%s begins after the previous release (schema %d): write a commit with this baseline to previous.txt",
			steps[0].Name, previous)
	}
	for _, m := range steps {
		if m.Version > previous {
			if err := onlyAdds(&m, previous); err != nil {
				return err
			}
		}
	}
	return nil
}

// The previous release works with each later step, so that two releases can run side by side, and an upgrade has a way
// back. The steps of the next release are planted, because this build may have none.
func TestMigrationsOnlyAdd(t *testing.T) {
	t.Parallel()
	previous := previousSchema(t)
	dialects := []*db.Dialect{postgres.Database{}.Dialect(), mysql.Database{}.Dialect(), sqlite.Database{}.Dialect()}
	for _, d := range dialects {
		steps := d.Migrations
		require.GreaterOrEqual(t, db.Newest(steps), previous)
		require.NoError(t, laterOnlyAdd(steps, previous), d.Name)
		require.ErrorContains(t, laterOnlyAdd(steps, steps[0].Version-1), "begins after the previous release")
	}
	next := func(d *db.Dialect, lowest int64, script string) error {
		return laterOnlyAdd(withNext(t, d, fmt.Sprintf("-- lowest: %d\n%s;\n", lowest, script)), previous)
	}
	for _, script := range []string{
		"DROP TABLE code", "DROP INDEX grants_by_user", "ALTER TABLE code DROP COLUMN code", "UPDATE code SET code = 'x'",
		"ALTER TABLE code ADD COLUMN x bigint NOT NULL", "ALTER TABLE code ADD COLUMN x bigint DEFAULT 0, DROP COLUMN code",
		"ALTER TABLE code RENAME COLUMN code TO text", "ALTER TABLE code ADD CHECK (code <> '')",
		"CREATE UNIQUE INDEX x ON code (code)", "CREATE TABLE x (code text REFERENCES code (code))",
		"ALTER TABLE code ALTER COLUMN code TYPE bigint", "CREATE TRIGGER x BEFORE INSERT ON code BEGIN SELECT 1; END",
		"CREATE TABLE x (y text);\nDROP TABLE code",
	} {
		for _, d := range dialects {
			require.ErrorContains(t, next(d, previous, script), "may not be able to work with", script)
		}
	}
	for _, d := range dialects {
		require.NoError(t, next(d, previous, "ALTER TABLE code ADD COLUMN x bigint"))
		require.ErrorContains(t, next(d, previous+1, "ALTER TABLE code ADD COLUMN x bigint"), "excludes the previous release")
	}
}
