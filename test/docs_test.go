package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/configs"
)

// anchors are the headings of a Markdown file, as links name them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// Every heading that a document links to is there.
func TestDocsLinkToHeadings(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	seen := 0
	sources(t, []string{".md"}, func(file string) {
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := text
			if m[1] != "" && strings.HasSuffix(m[1], ".md") {
				to, err = os.ReadFile(filepath.Join("..", filepath.Dir(file), m[1]))
				require.NoError(t, err)
			}
			require.True(t, anchors(string(to))[m[2]], "%s links to %s#%s, which has no such heading", file, m[1], m[2])
			seen++
		}
	})
	require.Greater(t, seen, 10)
}

// Every log line that docs/operations.md tells to alert on is written somewhere, and its Deployment waits for the drain.
func TestOperationsAreTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	var code strings.Builder
	sources(t, []string{".go"}, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		code.Write(text)
	})
	rows := regexp.MustCompile("(?m)^\\| .*level `(error|warn)`.*$").FindAllString(string(page), -1)
	require.GreaterOrEqual(t, len(rows), 5)
	for _, row := range rows {
		alert, _, _ := strings.Cut(row[2:], "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(alert, -1) {
			said := strings.TrimPrefix(m[1], "... ")
			require.True(t, said == "error" || said == "warn" || strings.Contains(code.String(), said), "nothing logs %q", said)
		}
	}
	cfg, err := configs.Load("", nil, nil)
	require.NoError(t, err)
	grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindStringSubmatch(string(page))
	require.Len(t, grace, 2)
	seconds, err := strconv.Atoi(grace[1])
	require.NoError(t, err)
	require.Greater(t, time.Duration(seconds)*time.Second, cfg.Consumer.DrainTimeout+10*time.Second)
}
