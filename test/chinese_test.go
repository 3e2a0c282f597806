package test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands returns the commands that a page tells its reader to run: its sh blocks, the commands of its console blocks,
// and its make lines.
func commands(text string) (all []string) {
	for _, m := range regexp.MustCompile("(?s)```(sh|console)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		lines := strings.Split(strings.TrimSpace(m[2]), "\n")
		for i, line := range lines {
			if m[1] == "sh" || strings.HasPrefix(line, "$ ") || i > 0 && strings.HasSuffix(lines[i-1], "\\") {
				all = append(all, line)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^    (make [a-z-]+) +#`).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// README.zh-CN.md and README.md contain the same commands, line by line.
func TestChineseReadme(t *testing.T) {
	t.Parallel()
	english := page(t, "README.md")
	want := commands(english)
	require.Greater(t, len(want), 2)
	require.Equal(t, want, commands(page(t, "README.zh-CN.md")))
	require.Contains(t, english, "(README.zh-CN.md)")
}
