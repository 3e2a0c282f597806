package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// scripts/build.sh says how far a build is, and ends as go build does.
func TestBuildShowsProgress(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../scripts/build.sh")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	build := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), script, "program", ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	write("go.mod", "module example.test/program\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() { println(\""+dir+"\") }\n") // no earlier build is in the cache
	out, err := build()
	require.NoError(t, err, out)
	require.Equal(t, "program is built; packages compiled: 1\n", out)
	require.FileExists(t, filepath.Join(dir, "program"))
	out, err = build()
	require.NoError(t, err, out)
	require.Equal(t, "program is built; packages compiled: 0\n", out)
	write("main.go", "package main\n\nfunc main() { undefined() }\n")
	out, err = build()
	require.Error(t, err)
	require.Contains(t, out, "undefined: undefined")
	require.NotContains(t, out, "is built")
}
