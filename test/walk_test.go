package test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each step in docs/walk.md names a function that exists, and the steps are numbered without a gap.
func TestWalk(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/walk.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`([a-z/_]+\.go):(\w+)`).FindAllStringSubmatch(string(page), -1) {
		code, err := os.ReadFile("../" + m[1])
		require.NoError(t, err)
		require.Regexp(t, `(?m)^func (\([^)]+\) )?`+m[2]+`[(\[]`, string(code), "docs/walk.md names %s", m[0])
	}
	headings := regexp.MustCompile(`(?m)^## \w+: (\d+) hops$`).FindAllSubmatchIndex(page, -1)
	require.Len(t, headings, 7)
	total := 0
	for i, at := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		rows := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllSubmatch(page[at[0]:end], -1)
		require.Equal(t, string(page[at[2]:at[3]]), strconv.Itoa(len(rows)), "%s", page[at[0]:at[1]])
		for n, row := range rows {
			require.Equal(t, strconv.Itoa(n+1), string(row[1]))
		}
		if i < 4 { // only the first four tables are about a grant
			total += len(rows)
		}
	}
	require.Contains(t, string(page), " "+strconv.Itoa(total)+" hops: ")
}
