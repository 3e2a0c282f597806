package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeRedis writes a program that stands in for redis-server.
func fakeRedis(t *testing.T, script string) string {
	path := filepath.Join(t.TempDir(), "redis-server")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
	return path
}

// If redis-server fails at its start, startServers returns at once with the last line of its log.
func TestRedisEndsAtItsStart(t *testing.T) {
	t.Parallel()
	began := time.Now()
	path := t.TempDir()
	broken := fakeRedis(t, "echo 'Bad directive: no such option'; exit 1\n")
	s, err := startServers(t.Context(), broken, &folder{path: path})
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "Bad directive: no such option")
	require.ErrorContains(t, err, filepath.Join(path, "redis.log"))
	require.Less(t, time.Since(began), redisStart/4)
	require.NoError(t, s.close())
}

// A redis-server that ignores SIGTERM is killed.
func TestRedisThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r, err := startRedis(t.Context(), fakeRedis(t, "trap '' TERM\necho ready\nwhile :; do sleep 0.1; done\n"), t.TempDir())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // wait until the trap is set
		said, err := os.ReadFile(r.log)
		return err == nil && string(said) == "ready\n"
	}, time.Minute, time.Millisecond)
	require.ErrorContains(t, r.close(100*time.Millisecond), "was killed")
	require.ErrorContains(t, r.err, "signal: killed")
}
