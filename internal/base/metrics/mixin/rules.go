package mixin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Runbooks is the URL of the runbooks. The annotation runbook_url appends an alert's code to it.
const Runbooks = "https://github.com/hongbao-project/hongbao/blob/main/docs/alarms.md#"

const head = "# Written by go test ./internal/base/metrics/mixin -update from the metrics' names; do not edit.\n"

// Rules returns the rule file for Prometheus.
func Rules(l Limits) string {
	var b strings.Builder
	b.WriteString(head + "groups:\n  - name: hongbao\n    rules:\n")
	for _, a := range Alerts(l) {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", a.Name(), quote(a.Expr))
		if a.For > 0 {
			fmt.Fprintf(&b, "        for: %s\n", span(a.For))
		}
		fmt.Fprintf(&b, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n"+
			"          runbook_url: %s\n", a.Severity, quote(a.Summary), Runbooks+a.Code)
	}
	return b.String()
}

// Tests returns promtool's unit tests of alerts in a rule file. They check that each alert fires on its fault, and only
// then.
func Tests(rules string, of ...Alert) string {
	var b strings.Builder
	fmt.Fprintf(&b, head+"rule_files: [%s]\nevaluation_interval: 1m\ntests:\n", rules)
	for _, a := range of {
		for _, c := range append(a.Cases, a.besides()...) {
			a.test(&b, &c)
		}
	}
	return b.String()
}

// besides returns a case with two deployments: the alert fires for a, although b is fine.
func (a *Alert) besides() []Case {
	if !strings.Contains(a.Expr, "deployment") {
		return nil
	}
	fault, fine := slices.IndexFunc(a.Cases, func(c Case) bool { return c.Fires }),
		slices.IndexFunc(a.Cases, func(c Case) bool { return !c.Fires && c.At == 0 })
	both := slices.Clone(a.Cases[fault].Series)
	for _, s := range a.Cases[fine].Series {
		both = append(both, [2]string{strings.Replace(s[0], `deployment="a"`, `deployment="b"`, 1), s[1]})
	}
	return []Case{fires("beside a deployment without the fault", both...)}
}

// test writes one test.
func (a *Alert) test(b *strings.Builder, c *Case) {
	verb := "is silent"
	if c.Fires {
		verb = "fires"
	}
	fmt.Fprintf(b, "  - name: %s\n    interval: 1m\n    input_series:\n", quote(a.Code+" "+verb+" "+c.Name))
	for _, s := range c.Series {
		fmt.Fprintf(b, "      - {series: %s, values: %s}\n", quote(s[0]), quote(s[1]))
	}
	at := cmp.Or(c.At, 29*time.Minute)
	fmt.Fprintf(b, "    alert_rule_test:\n      - eval_time: %s\n        alertname: %s\n", span(at), a.Name())
	if !c.Fires {
		b.WriteString("        exp_alerts: []\n")
		return
	}
	fmt.Fprintf(b, "        exp_alerts:\n          - exp_labels: {severity: %s", a.Severity)
	if strings.Contains(a.Expr, "deployment") {
		b.WriteString(`, deployment: "a"`)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		fmt.Fprintf(b, ", %s: %s", name, quote(a.Labels[name]))
	}
	fmt.Fprintf(b, "}\n            exp_annotations:\n              summary: %s\n              runbook_url: %s\n",
		quote(a.Summary), Runbooks+a.Code)
}

func quote(s string) string {
	if strings.Contains(s, `"`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}
