package mixin

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

var update = flag.Bool("update", false, "write deploy/alerts and deploy/grafana again")

const deploy = "../../../../deploy/"

func generated(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(deploy+path, []byte(text), 0o644))
	}
	have, err := os.ReadFile(deploy + path)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "deploy/%s is not current: run go test ./internal/base/metrics/mixin -update", path)
}

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	cmd := exec.CommandContext(context.Background(), "promtool", args...)
	cmd.Dir = deploy + "alerts"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %v (scripts/setup.sh installs it): %s", args, out)
	return string(out)
}

// The files in deploy/alerts match this package, and promtool accepts them. promtool's tests check that each alert
// fires on its fault, and only then.
func TestRules(t *testing.T) {
	t.Parallel()
	generated(t, "alerts/hongbao.rules.yaml", Rules(Production()))
	generated(t, "chart/files/hongbao.rules.yaml", Rules(Production())) // a chart can only read its own files
	generated(t, "alerts/hongbao.test.yaml", Tests("hongbao.rules.yaml", Alerts(Production())...))
	require.Contains(t, promtool(t, "check", "rules", "hongbao.rules.yaml"), "SUCCESS")
	require.Contains(t, promtool(t, "test", "rules", "hongbao.test.yaml"), "SUCCESS")
}

// The generated promtool tests are sensitive: they fail after the threshold of a rule was changed.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dir := t.TempDir()
	rules := strings.Replace(Rules(Production()), "hongbao_sink_oldest_seconds) > 300", "hongbao_sink_oldest_seconds) > 302", 1)
	require.NotEqual(t, Rules(Production()), rules)
	require.NoError(t, os.WriteFile(dir+"/rules.yaml", []byte(rules), 0o600))
	tests := Tests("rules.yaml", waits(Production())...)
	require.NoError(t, os.WriteFile(dir+"/test.yaml", []byte(tests), 0o600))
	out, err := exec.CommandContext(context.Background(), "promtool", "test", "rules", dir+"/test.yaml").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "HongbaoGrantsWait")
}

var named = regexp.MustCompile(`hongbao_[a-z_]+`)

// known requires that every metric in a query exists.
func known(t *testing.T, expr string) {
	t.Helper()
	names := map[string]bool{}
	for _, m := range metrics.All() {
		names[m.Name] = true
		if m.Kind == metrics.Histogram {
			names[m.Name+"_bucket"], names[m.Name+"_sum"], names[m.Name+"_count"] = true, true, true
		}
	}
	found := named.FindAllString(expr, -1)
	require.True(t, len(found) > 0 || strings.HasPrefix(expr, "up{"), expr)
	for _, name := range found {
		require.True(t, names[name], "%s in %s", name, expr)
	}
}

// apart requires that a query keeps deployments apart: it aggregates and matches by their labels.
func apart(t *testing.T, expr string) {
	t.Helper()
	require.NotRegexp(t, `\b(sum|min|max|count|avg)\s*\(`, expr, "an aggregation without by")
	found := grouped.FindAllStringSubmatch(expr, -1)
	require.NotEmpty(t, found, expr)
	for _, m := range found {
		require.Regexp(t, `^namespace, deployment(,|$)`, m[2], expr)
	}
}

var grouped = regexp.MustCompile(`\b(by|on|ignoring|without) \(([^)]*)\)`)

// Every query of the dashboard uses existing metrics, and promtool can parse it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := Dashboard()
	require.NoError(t, err)
	generated(t, "grafana/hongbao.json", text)
	generated(t, "chart/files/hongbao.json", text)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: queries\n    rules:\n")
	for _, p := range panels() {
		for _, q := range p.queries {
			known(t, q[0])
			apart(t, q[0])
			require.Equal(t, strings.Count(q[0], "hongbao_"), strings.Count(q[0], `deployment=~"$deployment"`), q[0])
			rules.WriteString("      - record: r\n        labels: {panel: " + quote(p.title+" "+q[1]) + "}\n        expr: " +
				quote(strings.ReplaceAll(q[0], "$__rate_interval", "1m")) + "\n")
		}
	}
	path := t.TempDir() + "/queries.yaml"
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(rules.String(), "{{", "")), 0o600))
	promtool(t, "check", "rules", "--lint=none", path)
}

// Every alert uses existing metrics, keeps deployments apart, and has a test in which it fires and one in which it is
// silent. Every code that a process logs has an alert.
func TestEveryCodeHasAnAlert(t *testing.T) {
	t.Parallel()
	codes := map[string]bool{}
	for _, a := range Alerts(Production()) {
		known(t, a.Expr)
		require.False(t, codes[a.Code], a.Code)
		codes[a.Code] = true
		if a.Code != "process_down" { // Prometheus itself writes the metric up, without the label deployment
			apart(t, a.Expr)
		}
		require.Contains(t, []string{critical, warning}, a.Severity)
		has, names := map[bool]bool{}, map[string]bool{}
		for _, c := range a.Cases {
			require.False(t, names[c.Name], "two cases %s of %s", c.Name, a.Code)
			has[c.Fires], names[c.Name] = true, true
		}
		require.Equal(t, map[bool]bool{true: true, false: true}, has, a.Code)
	}
	for _, code := range metrics.Codes() {
		require.True(t, codes[code], code)
	}
}
