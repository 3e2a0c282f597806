// Package mixin generates Prometheus alert rules and a Grafana dashboard from the metric table in
// internal/base/metrics. So their queries use only metrics that exist.
package mixin

import (
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// Times are the durations and age limits in the alert rules.
type Times struct {
	// Soon is how long a state must last before its alert fires. Window is how long an alert fires after a single
	// event.
	Soon, Window time.Duration
	// Old is the longest normal wait of a grant. Hang is the longest normal step of a worker. AuditOld is the maximum
	// age of the last audit.
	Old, Hang, AuditOld time.Duration
}

// Production returns the times that deploy/alerts uses.
func Production() Times {
	return Times{Soon: time.Minute, Window: 10 * time.Minute, Old: 5 * time.Minute, Hang: 5 * time.Minute, AuditOld: 26 * time.Hour}
}

// Alert is one alert rule. docs/alarms.md has its runbook under the heading Code.
type Alert struct {
	Code, Severity, Summary, Expr string
	For                           time.Duration
	// Fires and Quiet are the input of promtool's tests: series (name with labels) and their values, one a minute. With
	// Fires, the alert fires at the end, with Labels. With Quiet, it does not fire.
	Fires, Quiet [][2]string
	Labels       map[string]string
	// First is empty or a second input with which the alert fires: a counter that does not exist before the first
	// event.
	First [][2]string
}

// The severities. An alert of severity now wakes someone up, an alert of severity today does not.
const (
	now   = "now"
	today = "today"
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
func Alerts(t Times) []Alert {
	return append(append(logged(t), states(t)...), service(t)...)
}

// span formats a duration for PromQL.
func span(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// steady returns a series with the same value in every minute of a test.
func steady(m *metrics.Metric, labels, value string) [2]string {
	return [2]string{m.Name + labels, value + "x30"}
}

// logged returns the rules that fire after a process has logged an alarm for an event.
func logged(t Times) (all []Alert) {
	for _, one := range []struct{ code, severity, summary string }{
		{"redis_went_back", now, "Redis lost events that the ledger, the topic or a process knows"},
		{"redis_lost_data", now, "A process saw a shard or an open campaign vanish from Redis"},
		{"redis_restored", today, "Redis lost writes, and a worker restored what is known"},
		{"campaign_paused", now, "A worker paused a campaign: a grant contradicts the ledger or the plan"},
		{"sink_campaign_paused", now, "A worker paused a campaign for a sink: too many of its grants became dead letters"},
		{"forged_entry", now, "A stream of Redis has an entry that no grab and no close wrote"},
		{"events_lost", today, "Someone deleted entries of a stream before a sink had finished them"},
		{"unreadable_entry", today, "An entry of the stream can't be read"},
		{"handler_panicked", today, "The handler of a sink panicked: its code has a bug"},
		{"group_vanished", today, "Someone removed a consumer group from Redis"},
		{"unknown_campaign", today, "Grants wait unpaid: the ledger does not have their campaign"},
		{"newer_schema", now, "A process is too old for the ledger's schema and writes nothing: grants wait unpaid"},
		{"keys_unread", today, "hongbao serve can't read or use its key set"},
		{"fsync_slow", today, "Each grab waits for fsync, which Redis runs only once a second"},
	} {
		labels := `{code="` + one.code + `"}`
		all = append(all, Alert{Code: one.code, Severity: one.severity, Summary: one.summary,
			Expr:   happened(metrics.Alarms.Name+labels, t.Window),
			Fires:  [][2]string{{metrics.Alarms.Name + labels, "0x25 1x5"}},
			Quiet:  [][2]string{steady(metrics.Alarms, labels, "3")},
			First:  [][2]string{{metrics.Alarms.Name + labels, "_x25 1x5"}},
			Labels: map[string]string{"code": one.code}})
	}
	return all
}

// happened returns a query for alarms within the window. increase() misses an alarm that was logged before the first
// scrape, because the series then starts at 1. The second half of the query finds such new series.
func happened(series string, window time.Duration) string {
	return fmt.Sprintf("sum by (code) (increase(%[1]s[%[2]s])) > 0 or sum by (code) (%[1]s > 0 unless %[1]s offset %[2]s)",
		series, span(window))
}

// states returns the rules for faults that last until someone fixes them.
func states(t Times) []Alert {
	lasting := func(code, severity, summary string, lasts time.Duration) Alert {
		labels := `{sink="kafka",code="` + code + `"}`
		return Alert{Code: code, Severity: severity, Summary: summary, For: lasts,
			Expr:  "sum by (sink) (" + metrics.SinkShards.Name + `{code="` + code + `"}) > 0`,
			Fires: [][2]string{steady(metrics.SinkShards, labels, "1")},
			Quiet: [][2]string{steady(metrics.SinkShards, labels, "0")}, Labels: map[string]string{"sink": "kafka"}}
	}
	server, shard := map[string]string{"server": "r:1"}, map[string]string{"shard": "3"}
	return []Alert{
		lasting("sink_broken", now, "A worker can't start a sink: a person must fix the cause", t.Soon),
		lasting("shard_broken", now, "A sink has stopped on a shard: a person must fix the cause", t.Soon),
		lasting("sink_down", now, "The ledger, the remote or Kafka is unreachable", t.Soon),
		lasting("sink_opening", today, "A worker has tried to open a sink for minutes, without success", t.Old),
		{Code: "redis_down", Severity: now, Summary: "A server of Redis does not answer", For: t.Soon,
			Expr:  "min by (instance) (" + metrics.StateUp.Name + ") == 0",
			Fires: [][2]string{steady(metrics.StateUp, `{instance="a"}`, "0")},
			Quiet: [][2]string{steady(metrics.StateUp, `{instance="a"}`, "1")}, Labels: map[string]string{"instance": "a"}},
		{Code: "shard_frozen", Severity: now, Summary: "A shard is frozen: it decides no grabs and delivers nothing", For: t.Soon,
			Expr:  "min by (shard) (" + metrics.ShardOpen.Name + ") == 0",
			Fires: [][2]string{steady(metrics.ShardOpen, `{shard="3"}`, "0")},
			Quiet: [][2]string{steady(metrics.ShardOpen, `{shard="3"}`, "1")}, Labels: shard},
		{Code: "redis_lost_append_only", Severity: now, Summary: "A server of Redis writes no append-only file",
			Expr:  "min by (server) (" + metrics.RedisPersists.Name + ") == 0",
			Fires: [][2]string{steady(metrics.RedisPersists, `{server="r:1"}`, "0")},
			Quiet: [][2]string{steady(metrics.RedisPersists, `{server="r:1"}`, "1")}, Labels: server},
		{Code: "redis_evicts", Severity: now, Summary: "Redis may evict receipts: maxmemory-policy is not noeviction",
			Expr:  "min by (server) (" + metrics.RedisKeeps.Name + ") == 0",
			Fires: [][2]string{steady(metrics.RedisKeeps, `{server="r:1"}`, "0")},
			Quiet: [][2]string{steady(metrics.RedisKeeps, `{server="r:1"}`, "1")}, Labels: server},
		{Code: "redis_writes_fail", Severity: now, Summary: "A server of Redis could not write its files",
			Expr:  "min by (server) (" + metrics.RedisWrites.Name + ") == 0",
			Fires: [][2]string{steady(metrics.RedisWrites, `{server="r:1"}`, "0")},
			Quiet: [][2]string{steady(metrics.RedisWrites, `{server="r:1"}`, "1")}, Labels: server},
		{Code: "redis_memory", Severity: now, Summary: "A server of Redis uses more than 80 % of its maxmemory", For: t.Soon,
			Expr: "max by (server) (" + metrics.RedisMemory.Name + " / (" + metrics.RedisMaxMemory.Name + " > 0)) > 0.8",
			Fires: [][2]string{steady(metrics.RedisMemory, `{server="r:1"}`, "90"),
				steady(metrics.RedisMaxMemory, `{server="r:1"}`, "100")},
			Quiet: [][2]string{steady(metrics.RedisMemory, `{server="r:1"}`, "90"),
				steady(metrics.RedisMaxMemory, `{server="r:1"}`, "0")}, Labels: server},
		{Code: "dead_letter", Severity: today, Summary: "Dead letters wait for a person's decision",
			Expr:   "sum by (sink) (max by (sink, shard) (" + metrics.DeadLetters.Name + ")) > 0",
			Fires:  [][2]string{steady(metrics.DeadLetters, `{sink="kafka",shard="3"}`, "1")},
			Quiet:  [][2]string{steady(metrics.DeadLetters, `{sink="kafka",shard="3"}`, "0")},
			Labels: map[string]string{"sink": "kafka"}},
		{Code: "sink_paused", Severity: today, Summary: "A sink is paused, and its grants wait", For: t.Old,
			Expr:  "max by (sink) (" + metrics.SinkPaused.Name + ") == 1",
			Fires: [][2]string{steady(metrics.SinkPaused, `{sink="kafka"}`, "1")},
			Quiet: [][2]string{steady(metrics.SinkPaused, `{sink="kafka"}`, "0")}, Labels: map[string]string{"sink": "kafka"}},
	}
}

// service returns the rules for faults that users notice, and for failures of the audit and of the monitoring itself.
func service(t Times) []Alert {
	sink := map[string]string{"sink": "kafka"}
	grabs := func(outcome string) string { return metrics.Grabs.Name + `{outcome="` + outcome + `"}` }
	audited := metrics.AuditTime.Name
	return []Alert{
		{Code: "grants_wait", Severity: now, Summary: "A sink has not finished a grant for more than five minutes", For: t.Soon,
			Expr:  fmt.Sprintf("max by (sink) (%s) > %g", metrics.OldestSeconds.Name, t.Old.Seconds()),
			Fires: [][2]string{steady(metrics.OldestSeconds, `{sink="kafka",shard="3"}`, "301")},
			Quiet: [][2]string{steady(metrics.OldestSeconds, `{sink="kafka",shard="3"}`, "299")}, Labels: sink},
		{Code: "handler_hangs", Severity: now, Summary: "A worker is stuck on a shard: the sink's handler does not return",
			Expr:   fmt.Sprintf("time() - %s > %g", metrics.WorkerLastStep.Name, t.Hang.Seconds()),
			Fires:  [][2]string{{metrics.WorkerLastStep.Name + `{sink="kafka",shard="3"}`, "0+60x22 1380x8"}},
			Quiet:  [][2]string{{metrics.WorkerLastStep.Name + `{sink="kafka",shard="3"}`, "0+60x30"}},
			Labels: map[string]string{"sink": "kafka", "shard": "3"}},
		{Code: "no_worker", Severity: now, Summary: "Grants wait for a sink, and none of its workers is alive", For: t.Soon,
			Expr: "max by (sink) (" + metrics.LagGrants.Name + ") > 0 and on (sink) max by (sink) (" + metrics.Workers.Name +
				") == 0",
			Fires: [][2]string{steady(metrics.LagGrants, `{sink="kafka",shard="3"}`, "1"),
				steady(metrics.Workers, `{sink="kafka"}`, "0")},
			Quiet: [][2]string{steady(metrics.LagGrants, `{sink="kafka",shard="3"}`, "1"),
				steady(metrics.Workers, `{sink="kafka"}`, "1")}, Labels: sink},
		{Code: "grab_errors", Severity: now, Summary: "More than one grab in a hundred ends with an error", For: t.Soon,
			Expr: fmt.Sprintf(`sum(rate(%[1]s{outcome=~"error_.*"}[%[2]s])) / sum(rate(%[1]s[%[2]s])) > 0.01`,
				metrics.Grabs.Name, span(t.Window)),
			Fires: [][2]string{{grabs("error_unknown"), "0+2x30"}, {grabs("granted"), "0+98x30"}},
			Quiet: [][2]string{{grabs("error_unknown"), "0x30"}, {grabs("granted"), "0+98x30"}}},
		{Code: "grab_slow", Severity: now, Summary: "One grab in a hundred waits longer than a second", For: t.Soon,
			Expr: fmt.Sprintf("histogram_quantile(0.99, sum by (le) (rate(%s_bucket[%s]))) > 1", metrics.GrabSeconds.Name,
				span(t.Window)),
			Fires: [][2]string{{metrics.GrabSeconds.Name + `_bucket{le="1"}`, "0+9x30"},
				{metrics.GrabSeconds.Name + `_bucket{le="2.5"}`, "0+10x30"},
				{metrics.GrabSeconds.Name + `_bucket{le="+Inf"}`, "0+10x30"}},
			Quiet: [][2]string{{metrics.GrabSeconds.Name + `_bucket{le="1"}`, "0+10x30"},
				{metrics.GrabSeconds.Name + `_bucket{le="+Inf"}`, "0+10x30"}}},
		{Code: "audit_differs", Severity: now, Summary: "The last audit of all campaigns found differences",
			Expr:  "min(" + metrics.AuditAgrees.Name + ") == 0",
			Fires: [][2]string{steady(metrics.AuditAgrees, "", "0")},
			Quiet: [][2]string{steady(metrics.AuditAgrees, "", "1")}, Labels: map[string]string{}},
		{Code: "audit_old", Severity: today, Summary: "No audit of all campaigns has finished for more than a day", For: t.Old,
			Expr: fmt.Sprintf("time() - max(%[1]s) > %[2]g or max(%[3]s) == 1 unless on () max(%[1]s)", audited,
				t.AuditOld.Seconds(), metrics.StateUp.Name),
			Fires: [][2]string{steady(metrics.StateUp, `{instance="a"}`, "1")},
			Quiet: [][2]string{steady(metrics.StateUp, `{instance="a"}`, "1"), steady(metrics.AuditTime, "", "0")}},
		{Code: "process_down", Severity: now, Summary: "Prometheus can't scrape a process of Hongbao", For: t.Soon,
			Expr:   `up{job=~"hongbao.*"} == 0`,
			Fires:  [][2]string{{`up{job="hongbao-work",instance="a"}`, "0x30"}},
			Quiet:  [][2]string{{`up{job="hongbao-work",instance="a"}`, "1x30"}},
			Labels: map[string]string{"job": "hongbao-work", "instance": "a"}},
	}
}
