package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
)

var named = regexp.MustCompile("`hongbao ([a-z]+(?: [a-z]+(?:-[a-z]+)*)*)[^`]*`")

// commands returns the commands in a text, without their flags and arguments.
func commands(text string) (list []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

func TestEveryKindHasARemedy(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("kinds.go")
	require.NoError(t, err)
	kinds := regexp.MustCompile(`(?m)^\t\w+ +model\.DifferenceKind = "(\w+)"`).FindAllSubmatch(source, -1)
	require.Len(t, kinds, len(remedies))
	for i, k := range kinds {
		require.Equal(t, string(k[1]), string(remedies[i].kind), "remedies must have the order of the kinds")
		require.NotEmpty(t, remedies[i].means)
		require.NotEmpty(t, commands(remedies[i].do), "the remedy of %s names no command", k[1])
	}
}

// paragraphs splits a page into paragraphs, items and rows.
var paragraphs = regexp.MustCompile(`\n\n|\n\||\n- |\n\d+\. `)

// movesMoney has the commands that pay, refund or fund, or that deliver to the ledger.
var movesMoney = []string{"replay", "dead requeue", "dead confirm", "dead drop", "quarantine resolve",
	"campaign refund",
	"campaign refund-lost", "campaign create"}

// While the ledger disagrees with itself, no remedy names a command that moves money.
func TestNoRemedyMovesMoneyWhileTheLedgerDisagrees(t *testing.T) {
	t.Parallel()
	for _, broken := range []model.DifferenceKind{LedgerUnbalanced, DoubleCredit} {
		for _, m := range remedies {
			for _, frozen := range []bool{false, true} {
				for _, c := range commands(remedyOf(m.kind, map[model.DifferenceKind]int64{m.kind: 1, broken: 1}, frozen).Do) {
					if m.kind != MissingInTopic { // the remedy publishes grants and pays nothing
						require.NotContains(t, movesMoney, c, "%s beside %s", m.kind, broken)
					}
				}
			}
			if m.kind != DoubleCredit {
				require.Equal(t, model.Remedy{Means: m.means, Do: m.do}, remedyOf(m.kind,
					map[model.DifferenceKind]int64{m.kind: 1}, false))
			}
		}
	}
}

// docs/audit.md contains the table of remedies. If a paragraph of any page names kinds of differences, it may name only
// the commands in their remedies.
func TestRemediesInTheDocs(t *testing.T) {
	t.Parallel()
	table, kinds := "", map[string][]string{}
	for _, m := range remedies {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", m.kind, m.means, m.do)
		kinds["`"+string(m.kind)+"`"] = append(commands(m.do), "audit")
	}
	page, err := os.ReadFile("../../../docs/audit.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "| kind | what it means | what to do |\n|---|---|---|\n"+table+"\n",
		"docs/audit.md does not repeat the table")
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	deep, err := filepath.Glob("../../../docs/*/*.md")
	require.NoError(t, err)
	found := 0
	for _, file := range append(slices.Concat(pages, deep), "../../../README.md") {
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, paragraph := range paragraphs.Split(string(page), -1) {
			var want []string
			for kind, of := range kinds {
				if strings.Contains(paragraph, kind) {
					want = append(want, of...)
				}
			}
			if len(want) == 0 {
				continue
			}
			found++
			for _, c := range commands(paragraph) {
				require.Contains(t, want, c, "%s names `hongbao %s`, but no kind in the paragraph has this remedy: %s", file, c, paragraph)
			}
		}
	}
	require.Greater(t, found, len(remedies), "the pages name kinds")
}
