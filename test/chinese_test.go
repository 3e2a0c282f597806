package test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$|\n\n(?:    [^\n]*\n)+")
	structure = regexp.MustCompile(`(?m)^(#+ |\|| *(?:[-*]|\d+\.) )`)
	comment   = regexp.MustCompile(`(?m) +# .*$`)
	testName  = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// shapeOf returns a page's numbers of headings, table rows and list items, its code blocks without comments, and the
// names of tests in it.
func shapeOf(text string) (counts map[string]int, code, tests []string) {
	counts = map[string]int{}
	for _, m := range structure.FindAllString(codeBlock.ReplaceAllString(text, "\n"), -1) {
		switch {
		case strings.HasPrefix(m, "#"):
			counts["heading "+m]++
		case m == "|":
			counts["table row"]++
		default:
			counts["list item"]++
		}
	}
	for _, block := range codeBlock.FindAllString(text, -1) {
		code = append(code, comment.ReplaceAllString(strings.Trim(block, "\n"), ""))
	}
	tests = testName.FindAllString(text, -1)
	slices.Sort(tests)
	return counts, code, tests
}

// Each Chinese page has the structure, the code and the tests of its English page. The pages link to each other.
func TestChinesePages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"README.zh-CN.md": "README.md"}
	found, err := filepath.Glob("../docs/zh/*.md")
	require.NoError(t, err)
	for _, file := range found {
		pages["docs/zh/"+filepath.Base(file)] = "docs/" + filepath.Base(file)
	}
	require.Greater(t, len(pages), 1)
	for chinese, english := range pages {
		counts, code, tests := shapeOf(page(t, english))
		require.Greater(t, counts["heading ## "], 2, english)
		gotCounts, gotCode, gotTests := shapeOf(page(t, chinese))
		require.Equal(t, counts, gotCounts, chinese)
		require.Equal(t, code, gotCode, chinese)
		require.Equal(t, tests, gotTests, chinese)
		require.Contains(t, page(t, english), "English | [简体中文]("+strings.TrimPrefix(chinese, "docs/")+")")
		require.Contains(t, page(t, chinese), english[strings.LastIndex(english, "/")+1:]+") | 简体中文")
	}
}
