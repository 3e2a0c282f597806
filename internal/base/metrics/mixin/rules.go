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
// then. promtool evaluates every rule in every minute of every test. So a test has all cases of an alert that are seen at
// the same time, each in a deployment of its own. That also shows that no deployment hides or causes the alert of another.
func Tests(rules string, of ...Alert) string {
	var b strings.Builder
	fmt.Fprintf(&b, head+"rule_files: [%s]\nevaluation_interval: 1m\ntests:\n", rules)
	for _, a := range of {
		for _, cases := range a.together() {
			a.test(&b, cases)
		}
	}
	return b.String()
}

// together returns the cases that can be in the same test.
func (a *Alert) together() (tests [][]Case) {
	for _, c := range a.Cases {
		c.At = cmp.Or(c.At, 29*time.Minute)
		i := slices.IndexFunc(tests, func(cases []Case) bool { return a.apart() && cases[0].At == c.At })
		if i < 0 {
			i, tests = len(tests), append(tests, nil)
		}
		tests[i] = append(tests[i], c)
	}
	return tests
}

// apart reports whether the alert has the label deployment. An alert for Prometheus' own metrics does not have it.
func (a *Alert) apart() bool { return strings.Contains(a.Expr, "deployment") }

// test writes one test. The deployment of a case has the name of the case.
func (a *Alert) test(b *strings.Builder, cases []Case) {
	fmt.Fprintf(b, "  - name: %s\n    interval: 1m\n    input_series:\n", a.Code)
	for _, c := range cases {
		for _, s := range c.Series {
			series := strings.Replace(s[0], `deployment="a"`, "deployment="+strconv.Quote(c.Name), 1)
			fmt.Fprintf(b, "      - {series: %s, values: %s}\n", quote(series), quote(s[1]))
		}
	}
	fmt.Fprintf(b, "    alert_rule_test:\n      - eval_time: %s\n        alertname: %s\n        exp_alerts:", span(cases[0].At), a.Name())
	cases = slices.DeleteFunc(cases, func(c Case) bool { return !c.Fires })
	if len(cases) == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for _, c := range cases {
		fmt.Fprintf(b, "          - exp_labels: {severity: %s", a.Severity)
		if a.apart() {
			b.WriteString(", deployment: " + quote(c.Name))
		}
		for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
			fmt.Fprintf(b, ", %s: %s", name, quote(a.Labels[name]))
		}
		fmt.Fprintf(b, "}\n            exp_annotations:\n              summary: %s\n              runbook_url: %s\n",
			quote(a.Summary), Runbooks+a.Code)
	}
}

func quote(s string) string {
	if strings.Contains(s, `"`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}
