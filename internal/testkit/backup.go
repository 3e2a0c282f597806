package testkit

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// DumpPostgres backs a database up with pg_dump, and returns the file.
func DumpPostgres(t testing.TB, dsn string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.dump")
	postgresTool(t, "pg_dump", "--format=custom", "--no-owner", "--file="+file, "--dbname="+dsn)
	return file
}

// RestorePostgres restores a file of DumpPostgres into a new database, and returns its address for pgx.
func RestorePostgres(t testing.TB, file string) string {
	t.Helper()
	dsn := Postgres(t)
	postgresTool(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+dsn, file)
	return dsn
}

func postgresTool(t testing.TB, name string, args ...string) {
	t.Helper()
	path := running(t, func() (string, error) { return program(name, "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin") })
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("testkit: %s: %v\n%s", name, err, out)
	}
}
