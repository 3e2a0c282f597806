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
	heading2  = regexp.MustCompile(`(?m)^## .+$`)
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

// partial has the Chinese pages that end before a section of their English page, with the heading of this section.
var partial = map[string]string{"docs/zh/operations.md": "What to alert on"}

// splitAt returns the text before the section with this heading, and the anchors of this section and of all sections
// after it.
func splitAt(t *testing.T, text, heading string) (before string, after map[string]bool) {
	t.Helper()
	before, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found, "no section %q", heading)
	return before + "\n", anchors("## " + heading + "\n" + strings.Join(heading2.FindAllString(rest, -1), "\n"))
}

// Each Chinese page has the structure, the code and the tests of its English page. The pages link to each other. A
// partial page has those of the sections that it covers, and links to each of the others.
func TestChinesePages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"README.zh-CN.md": "README.md"}
	found, err := filepath.Glob("../docs/zh/*.md")
	require.NoError(t, err)
	for _, file := range found {
		pages["docs/zh/"+filepath.Base(file)] = "docs/" + filepath.Base(file)
	}
	require.Greater(t, len(pages), 1)
	for chinese := range partial {
		require.Contains(t, pages, chinese)
	}
	for chinese, english := range pages {
		text := page(t, english)
		if heading, ok := partial[chinese]; ok {
			before, after := splitAt(t, text, heading)
			text = before
			for anchor := range after {
				require.Contains(t, page(t, chinese), "](../"+filepath.Base(english)+"#"+anchor+")", chinese)
			}
		}
		counts, code, tests := shapeOf(text)
		require.Positive(t, counts["heading ## "], english)
		gotCounts, gotCode, gotTests := shapeOf(page(t, chinese))
		require.Equal(t, counts, gotCounts, chinese)
		require.Equal(t, code, gotCode, chinese)
		require.Equal(t, tests, gotTests, chinese)
		require.Contains(t, page(t, english), "English | [简体中文]("+strings.TrimPrefix(chinese, "docs/")+")")
		require.Contains(t, page(t, chinese), english[strings.LastIndex(english, "/")+1:]+") | 简体中文")
	}
}
