package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asCommand matches a hongbao command line in backquotes, in docs, strings and comments.
var asCommand = regexp.MustCompile("`(?:bin/)?hongbao ([^`\n]+)`")

// asLine matches a hongbao command on its own line of a page.
var asLine = regexp.MustCompile(`(?m)^(?: {4,}|\$ )(?:bin/)?hongbao ([a-z][^|<>&\n]*)`)

// missing returns the part of a command line that does not exist, or "" if all of it exists.
func missing(root *cobra.Command, line string) string {
	words := strings.Fields(line)
	cmd, _, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(name, "=")
		name = strings.TrimRight(name, ".,;:)")
		if isFlag && name != "help" && name != "version" && cmd.Flags().Lookup(name) == nil &&
			cmd.InheritedFlags().Lookup(name) == nil {
			return "no flag --" + name
		}
	}
	if rest := strings.Fields(strings.TrimPrefix("hongbao "+line, cmd.CommandPath())); cmd.HasSubCommands() &&
		len(rest) > 0 && rest[0][0] != '-' {
		return cmd.CommandPath() + " has no command " + rest[0]
	}
	return ""
}

// alternatives expands a word a|b of a line into one line for each alternative.
func alternatives(line string) []string {
	words := strings.Fields(line)
	for i, w := range words {
		if strings.Contains(w, "|") {
			var lines []string
			for choice := range strings.SplitSeq(w, "|") {
				words[i] = choice
				lines = append(lines, alternatives(strings.Join(words, " "))...)
			}
			return lines
		}
	}
	return []string{line}
}

// Every command and flag that a page, a string or a comment names exists. This includes the remedies that audits print.
func TestCommandsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, missing(root(), "campaign freeze ID"))
	require.NotEmpty(t, missing(root(), "thaw"))
	require.NotEmpty(t, missing(root(), "replay x --to kafka --everything"))
	all := root()
	all.InitDefaultCompletionCmd() // cobra adds this command when it runs
	checked := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir
		}
		if name := entry.Name(); err != nil || !strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, ".go") ||
			strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		named := asCommand.FindAllStringSubmatch(string(text), -1)
		if strings.HasSuffix(path, ".md") {
			named = append(named, asLine.FindAllStringSubmatch(string(text), -1)...)
		}
		for _, m := range named {
			for _, line := range alternatives(m[1]) {
				checked++
				assert.Empty(t, missing(all, line), "%s names `hongbao %s`", path, m[1])
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, checked, 100)
}
