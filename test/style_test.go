package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources calls fn with every file of the repository whose name ends with one of the suffixes. path uses slashes.
func sources(t *testing.T, suffixes []string, fn func(path string)) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(p, s) }):
			found++
			fn(strings.TrimPrefix(filepath.ToSlash(p), "../"))
		}
		return nil
	}))
	require.Positive(t, found, "no file ends with %v: the test checks nothing", suffixes)
}

// headSins returns what is missing in the head of a script. A script without commands is a library for other scripts.
func headSins(name, src string) []string {
	var head strings.Builder
	for line := range strings.Lines(src) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		head.WriteString(line)
	}
	var sins []string
	if !strings.HasPrefix(src, "-- "+name+": ") {
		sins = append(sins, `want "-- `+name+`: <purpose>" as its first line`)
	}
	want := []string{"KEYS", "ARGV", "Reply", "Cost", "First write", "Repeat"}
	// these scripts are libraries, which are put before other scripts
	if name == "bits" || name == "control" || name == "fields" || name == "guard" || name == "left" || name == "marks" || name == "parking" ||
		name == "seen" || name == "stub" || name == "withheld" {
		want = nil
	}
	for _, field := range want {
		if !regexp.MustCompile(`(?m)^-- ` + field + `\s+\S`).MatchString(head.String()) {
			sins = append(sins, "its head lacks "+field)
		}
	}
	return sins
}

func TestScriptHeads(t *testing.T) {
	t.Parallel()
	sources(t, []string{".lua"}, func(file string) {
		src, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, s := range headSins(strings.TrimSuffix(filepath.Base(file), ".lua"), string(src)) {
			t.Errorf("%s: %s", file, s)
		}
	})
	require.Len(t, headSins("x", "-- y: does\nreturn 1\n-- KEYS 1 too late\n"), 7)
	require.Empty(t, headSins("x",
		"-- x: does\n-- KEYS  1 a\n-- ARGV  none\n-- Reply 1\n-- Cost  O(1)\n-- First write HSET\n-- Repeat the same\n"))
}
