package dev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
)

// Only its owner can read the file of --env. A start removes the file of a killed earlier run, but no file that
// another program wrote.
func TestEnvFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ".env")
	require.NoError(t, clearEnv(""))
	require.NoError(t, clearEnv(path))
	require.NoError(t, writeEnv(path, "export KEY=1\n"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())
	require.ErrorIs(t, writeEnv(path, "export KEY=2\n"), os.ErrExist)
	require.NoError(t, clearEnv(path), "a killed run left it")
	require.NoFileExists(t, path)
	require.NoError(t, removeEnv(path, "export KEY=1\n"), "somebody has removed it")

	for _, text := range []string{"", "# of", "export KEY=1\n", "export KEY=0123456789 # " + envMark} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.ErrorAs(t, clearEnv(path), &app.UsageError{}, text)
		require.NoError(t, removeEnv(path, "export KEY=1\n"))
		require.FileExists(t, path, "it is somebody else's")
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, writeEnv(path, "export KEY=2\n"))
	require.NoError(t, removeEnv(path, "export KEY=1\n"))
	require.FileExists(t, path, "it is of another start")
	require.NoError(t, removeEnv(path, "export KEY=2\n"))
	require.NoFileExists(t, path)
	require.ErrorAs(t, clearEnv(t.TempDir()), &app.UsageError{})
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	require.ErrorAs(t, clearEnv(link), &app.UsageError{})
}
