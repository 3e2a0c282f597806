package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/metrics.md again")

// generated compares a generated file with text. With -update it writes the file first.
func generated(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "%s is not current: run go test ./internal/base/metrics -update", path)
}

func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../../docs/metrics.md", "<!-- written by go test ./internal/base/metrics -update -->\n",
		"<!-- end -->\n"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, tail, found := strings.Cut(rest, end)
	require.True(t, found)
	var b strings.Builder
	for _, g := range Table() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| name | labels | what | normal |\n|---|---|---|---|\n", g.Title, g.About)
		for _, m := range g.Metrics {
			labels := ""
			if len(m.Labels) > 0 {
				labels = "`" + strings.Join(m.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, labels, m.Help, m.Normal)
		}
	}
	generated(t, path, head+begin+b.String()+"\n"+end+tail)
}

// Each name follows the naming rules of Prometheus and is used once.
func TestNamesAreInOrder(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	seen := map[string]bool{}
	for _, m := range All() {
		require.False(t, seen[m.Name], m.Name)
		seen[m.Name] = true
		require.Regexp(t, `^hongbao_[a-z_]+$`, m.Name)
		require.NotEmpty(t, m.Normal, m.Name)
		require.Equal(t, m.Kind == Histogram, m.Buckets != nil, m.Name)
		for _, label := range m.Labels {
			require.Contains(t, []string{"by", "campaign", "check", "class", "code", "command",
				"kind", "knob", "level", "listener", "outcome", "request", "result",
				"role", "route", "server", "shard", "sink", "status", "version"}, label, "is this label bounded? docs/metrics.md says by what")
		}
		if m.Kind != Histogram {
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %[1]s %[3]s\n%[1]s 1\n", m.Name, m.Help, m.Kind)
		}
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
