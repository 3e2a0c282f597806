package test

import (
	"path"
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
	generated = regexp.MustCompile(`(?s)<!-- bench -->.*<!-- /bench -->`)
)

// shapeOf returns a page's numbers of headings, table rows and list items, its code blocks without comments, and the
// names of tests in it. It leaves out a table that bench writes, because a Chinese page may link to the figures instead.
func shapeOf(text string) (counts map[string]int, code, tests []string) {
	text = generated.ReplaceAllString(text, "")
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

// chinesePages maps each Chinese page to its English page.
func chinesePages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{"README.zh-CN.md": "README.md"}
	found, err := filepath.Glob("../docs/zh/*.md")
	require.NoError(t, err)
	for _, file := range found {
		pages["docs/zh/"+filepath.Base(file)] = "docs/" + filepath.Base(file)
	}
	require.Greater(t, len(pages), 1)
	return pages
}

// Each Chinese page has the structure, the code and the tests of its English page. The pages link to each other.
func TestChinesePages(t *testing.T) {
	t.Parallel()
	for chinese, english := range chinesePages(t) {
		counts, code, tests := shapeOf(page(t, english))
		require.Positive(t, counts["heading ## "], english)
		gotCounts, gotCode, gotTests := shapeOf(page(t, chinese))
		require.Equal(t, counts, gotCounts, chinese)
		require.Equal(t, code, gotCode, chinese)
		require.Equal(t, tests, gotTests, chinese)
		require.Contains(t, page(t, english), "English | [简体中文]("+strings.TrimPrefix(chinese, "docs/")+")")
		require.Contains(t, page(t, chinese), english[strings.LastIndex(english, "/")+1:]+") | 简体中文")
	}
}

// A link from a Chinese page leads to the Chinese version of the page. If there is none, the mark （英文） follows the
// link. The first lines, which switch the language, and the generated table of the README are exceptions.
func TestLinksOfChinesePages(t *testing.T) {
	t.Parallel()
	pages := chinesePages(t)
	versions := map[string]string{}
	for chinese, english := range pages {
		versions[english] = chinese
	}
	link := regexp.MustCompile(`\]\(([^)#:]+\.md)(?:#[^)]*)?\)(（英文）)?`)
	marked := 0
	for chinese := range pages {
		_, text, found := strings.Cut(page(t, chinese), ") | 简体中文")
		require.True(t, found, chinese)
		for _, m := range link.FindAllStringSubmatch(generated.ReplaceAllString(text, ""), -1) {
			linked := path.Join(path.Dir(chinese), m[1])
			switch {
			case versions[linked] != "":
				t.Errorf("%s links to %s: link to %s", chinese, linked, versions[linked])
			case pages[linked] == "" && m[2] == "":
				t.Errorf("%s links to %s, which is English: write （英文） after the link", chinese, linked)
			case pages[linked] != "" && m[2] != "":
				t.Errorf("%s links to %s, which is Chinese: remove （英文） after the link", chinese, linked)
			case m[2] != "":
				marked++
			}
		}
	}
	require.Positive(t, marked)
}
