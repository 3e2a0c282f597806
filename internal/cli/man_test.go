package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Each command in the help has a manual page with its examples and flags. Two runs write the same pages.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir, again := filepath.Join(t.TempDir(), "man1"), t.TempDir()
	for _, folder := range []string{dir, again} {
		r := runProgram(t, []string{"SOURCE_DATE_EPOCH=1771358400"}, "man", folder)
		require.Zero(t, r.code, r.err)
		pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d manual pages written to %s\n", len(pages), folder), r.out)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, part := range []string{".SH NAME", ".SH SYNOPSIS", `"Feb 2026"`} {
			require.Contains(t, string(text), part, name)
		}
		if cmd.Example != "" {
			require.Contains(t, string(text), ".SH EXAMPLE", name)
		}
		require.NotContains(t, string(text), "spf13", name)
		twice, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		require.Equal(t, string(text), string(twice))
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root())
	require.Contains(t, runProgram(t, nil, "--help").out, "Write a manual page of each command")
	page, err := os.ReadFile(filepath.Join(dir, "hongbao-sink-limit.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), `\fB--rate\fP`)
	require.NotContains(t, string(page), "consumer.lease", "the knobs are in docs/configuration.md")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := runProgram(t, nil, "man", file)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "make the folder of the manual pages")
}
