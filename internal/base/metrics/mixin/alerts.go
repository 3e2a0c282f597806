// Package mixin generates Prometheus alert rules and a Grafana dashboard from the metric table in
// internal/base/metrics. So their queries use only metrics that exist.
package mixin

import (
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// Limits are the durations, ages and numbers in the alert rules.
type Limits struct {
	// Soon is how long a state must last before its alert fires. Window is how long an alert fires after a single
	// event.
	Soon, Window time.Duration
	// Old is the longest normal wait of a grant. Hang is the longest normal step of a worker. Start is how long the
	// first worker may take to start, by an autoscaler too.
	Old, Hang, Start time.Duration
	// Gone is how long the alerts about a lost replica and a vanished deployment or server fire.
	Gone time.Duration
	// Refund is the longest normal time from the end of a campaign's window to its refund.
	Refund time.Duration
	// Errors, Letters and Grabs are numbers within Window. Below them, a share of errors, dead letters or slow grabs
	// means nothing.
	Errors, Letters, Grabs int
}

// Production returns the limits that deploy/alerts uses.
func Production() Limits {
	return Limits{Soon: time.Minute, Window: 10 * time.Minute, Old: 5 * time.Minute, Hang: 5 * time.Minute,
		Start: 3 * time.Minute, Gone: 6 * time.Hour, Refund: metrics.RefundWithin, Errors: 20, Letters: 20, Grabs: 1000}
}

// Alert is one alert rule. docs/alarms.md has its runbook under the heading Code.
type Alert struct {
	Code, Severity, Summary, Expr string
	For                           time.Duration
	// Cases are promtool's tests. In the cases in which the alert fires, it has Labels and the label deployment.
	Cases  []Case
	Labels map[string]string
}

// Case is the input of a test: series (name with labels) and their values, one a minute.
type Case struct {
	Name   string
	Fires  bool
	Series [][2]string
	// At is when the test looks; 0 means at the end of half an hour.
	At time.Duration
}

func fires(name string, series ...[2]string) Case {
	return Case{Name: name, Fires: true, Series: series}
}
func silent(name string, series ...[2]string) Case { return Case{Name: name, Series: series} }

// after returns the case with a longer time.
func (c Case) after(at time.Duration) Case {
	c.At = at
	return c
}

// The severities. A critical alert wakes someone up, a warning does not.
const (
	critical = "critical"
	warning  = "warning"
)

// Name returns the name of the rule in Prometheus: Hongbao and the code in camel case.
func (a *Alert) Name() string {
	name := "Hongbao"
	for part := range strings.SplitSeq(a.Code, "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// Alerts lists every rule.
func Alerts(l Limits) (all []Alert) {
	for _, list := range [][]Alert{logged(l), paused(l), sinks(l), redis(l), grabs(l), ledger(l), audits(l), keys(),
		scrapes(l)} {
		all = append(all, list...)
	}
	return all
}

// span formats a duration for PromQL.
func span(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// whole names the labels of a deployment. Deployments in two namespaces may have the same id.
const whole = "namespace, deployment"

// each returns the labels of a deployment and these labels.
func each(labels string) string { return whole + ", " + labels }

// per returns a query that aggregates by the labels of a deployment and by the other labels.
func per(aggregate, labels, of string) string {
	return fmt.Sprintf("%s by (%s) (%s)", aggregate, strings.TrimSuffix(each(labels), ", "), of)
}

// at returns a series for a test, of deployment a.
func at(m *metrics.Metric, labels, values string) [2]string { return sample(m.Name, labels, values) }

func sample(name, labels, values string) [2]string {
	if labels != "" {
		labels = "," + labels
	}
	return [2]string{name + `{deployment="a"` + labels + "}", values}
}

// steady returns a series with the same value in every minute of a test.
func steady(m *metrics.Metric, labels, value string) [2]string { return at(m, labels, value+"x30") }

// happened returns a query for alarms within the window. increase() misses an alarm that was logged before the first
// scrape, because the series then starts at 1. The second half of the query finds such new series.
func happened(code, labels string, window time.Duration) string {
	series := metrics.Alarms.Name + `{code="` + code + `"}`
	return per("sum", labels, fmt.Sprintf("increase(%s[%s])", series, span(window))) + " > 0 or " +
		per("sum", labels, fmt.Sprintf("%[1]s > 0 unless %[1]s offset %[2]s", series, span(window)))
}

// happens returns the test cases of an alarm.
func happens(code string) []Case {
	alarm := func(values string) [2]string { return at(metrics.Alarms, `code="`+code+`"`, values) }
	return []Case{fires("on an alarm", alarm("0x25 1x5")), fires("on an alarm before the first scrape", alarm("_x25 1x5")),
		silent("later", alarm("3x30"))}
}

// logged returns the rules that fire after a process has logged an alarm for an event.
func logged(l Limits) (all []Alert) {
	for _, one := range []struct{ code, severity, summary string }{
		{"redis_went_back", critical, "Redis lost events that the ledger, the topic or a process knows"},
		{"redis_lost_data", critical, "A process saw a shard or an open campaign vanish from Redis"},
		{"redis_restored", warning, "Redis lost writes, and a worker restored what is known"},
		{"forged_entry", critical, "A stream of Redis has an entry that no grab and no close wrote"},
		{"events_lost", warning, "Someone deleted entries of a stream before a sink had finished them"},
		{"unreadable_entry", warning, "An entry of the stream can't be read"},
		{"handler_panicked", warning, "A handler of a sink or of a request panicked: its code has a bug"},
		{"group_vanished", warning, "Someone removed a consumer group from Redis"},
		{"unknown_campaign", warning, "Grants wait unpaid: the ledger does not have their campaign"},
		{"incomplete_plan", critical, "Grants wait unpaid: the program's plan lacks packets that the ledger counts"},
		{"newer_schema", critical, "A process is too old for the ledger's schema and writes nothing: grants wait unpaid"},
		{"ledger_asynchronous", warning, "The ledger's server replicates asynchronously: a failover loses what is paid now"},
		{"keys_unread", warning, "hongbao serve can't read or use its key set"},
		{"certificate_unread", warning, "A renewed certificate can't be used; the process still uses the one before"},
		{"fsync_slow", warning, "Each grab waits for fsync, which Redis runs only once a second"},
	} {
		all = append(all, Alert{Code: one.code, Severity: one.severity, Summary: one.summary,
			Expr: happened(one.code, "code", l.Window), Cases: happens(one.code), Labels: map[string]string{"code": one.code}})
	}
	return all
}

// paused returns the rules for pauses. Pauses by workers fire at once, and until a person resumes the campaign.
func paused(l Limits) []Alert {
	state := func(m *metrics.Metric, labels, value string) Case {
		return fires("until it is resumed", steady(m, labels, value))
	}
	byWorker := metrics.SinkPausedCampaigns.Name + `{by="worker"}`
	return []Alert{
		{Code: "campaign_paused", Severity: critical,
			Summary: "A worker paused a campaign: a grant contradicts the ledger or the plan",
			Expr:    happened("campaign_paused", "", l.Window) + " or " + per("max", "", metrics.PausedCampaigns.Name) + " > 0",
			Cases: append(happens("campaign_paused"), state(metrics.PausedCampaigns, "", "1"),
				silent("after the campaign was resumed", steady(metrics.PausedCampaigns, "", "0")))},
		{Code: "sink_campaign_paused", Severity: critical,
			Summary: "A worker paused a campaign for a sink: too many of its grants became dead letters",
			Expr:    happened("sink_campaign_paused", "", l.Window) + " or " + per("max", "", byWorker) + " > 0",
			Cases: append(happens("sink_campaign_paused"), state(metrics.SinkPausedCampaigns, kafka+`,by="worker"`, "1"),
				silent("if a person paused it", steady(metrics.SinkPausedCampaigns, kafka+`,by="person"`, "1"),
					steady(metrics.SinkPausedCampaigns, kafka+`,by="worker"`, "0")))},
		{Code: "sink_paused", Severity: warning, Summary: "A person paused a sink, or a campaign for a sink: its grants wait",
			For: l.Old,
			Expr: per("max", "sink", metrics.SinkPaused.Name) + " == 1 or " +
				per("max", "sink", metrics.SinkPausedCampaigns.Name+`{by="person"}`) + " > 0",
			Cases: []Case{fires("if the sink is paused", steady(metrics.SinkPaused, kafka, "1")),
				fires("if a campaign is paused", steady(metrics.SinkPausedCampaigns, kafka+`,by="person"`, "2")),
				silent("during a pause of four minutes", at(metrics.SinkPaused, kafka, "0x25 1x4")),
				silent("if nothing is paused", steady(metrics.SinkPaused, kafka, "0"))},
			Labels: map[string]string{"sink": "kafka"}},
	}
}
