package mixin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Runbooks is the URL of the runbooks. The annotation runbook_url appends an alert's code to it.
const Runbooks = "https://github.com/hongbao-project/hongbao/blob/main/docs/alarms.md#"

const head = "# Written by go test ./internal/base/metrics/mixin -update from the metrics' names; do not edit.\n"

// Rules returns the rule file for Prometheus.
func Rules(t Times) string {
	var b strings.Builder
	b.WriteString(head + "groups:\n  - name: hongbao\n    rules:\n")
	for _, a := range Alerts(t) {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", a.Name(), quote(a.Expr))
		if a.For > 0 {
			fmt.Fprintf(&b, "        for: %s\n", span(a.For))
		}
		fmt.Fprintf(&b, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n"+
			"          runbook_url: %s\n", a.Severity, quote(a.Summary), Runbooks+a.Code)
	}
	return b.String()
}

// Tests returns promtool's unit tests for the rule file. They check that each alert fires on its fault, and only then.
func Tests(rules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, head+"rule_files: [%s]\nevaluation_interval: 1m\ntests:\n", rules)
	for _, a := range Alerts(Production()) {
		for _, c := range []struct {
			name   string
			series [][2]string
			fires  bool
		}{{"fires", a.Fires, true}, {"is quiet", a.Quiet, false}, {"fires by its first sample", a.First, true}} {
			if len(c.series) == 0 {
				continue
			}
			fmt.Fprintf(&b, "  - name: %s %s\n    interval: 1m\n    input_series:\n", a.Code, c.name)
			for _, s := range c.series {
				fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quote(s[0]), quote(s[1]))
			}
			fmt.Fprintf(&b, "    alert_rule_test:\n      - eval_time: 29m\n        alertname: %s\n", a.Name())
			if !c.fires {
				b.WriteString("        exp_alerts: []\n")
				continue
			}
			fmt.Fprintf(&b, "        exp_alerts:\n          - exp_labels: {severity: %s", a.Severity)
			for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
				fmt.Fprintf(&b, ", %s: %s", name, quote(a.Labels[name]))
			}
			fmt.Fprintf(&b, "}\n            exp_annotations:\n              summary: %s\n              runbook_url: %s\n",
				quote(a.Summary), Runbooks+a.Code)
		}
	}
	return b.String()
}

func quote(s string) string {
	if strings.Contains(s, `"`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}
