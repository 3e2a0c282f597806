package mixin

import (
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// kafka and shard3 are labels of the test series.
const (
	kafka  = `sink="kafka"`
	shard3 = kafka + `,shard="3"`
)

// sinks returns the rules for the sinks and their workers.
func sinks(l Limits) []Alert {
	lasting := func(code, severity, summary string) Alert {
		labels := kafka + `,code="` + code + `"`
		a := Alert{Code: code, Severity: severity, Summary: summary, For: l.Soon,
			Expr: per("sum", "sink", metrics.SinkShards.Name+`{code="`+code+`"}`) + " > 0",
			Cases: []Case{fires("while it lasts", steady(metrics.SinkShards, labels, "1")),
				silent("in a rollout", at(metrics.SinkShards, labels, "0x28 1")),
				silent("on a quiet night", steady(metrics.SinkShards, labels, "0"))},
			Labels: map[string]string{"sink": "kafka"}}
		if code == "sink_opening" {
			a.For = l.Old
		}
		return a
	}
	return append([]Alert{
		lasting("sink_broken", critical, "A worker can't start a sink: a person must fix the cause"),
		lasting("shard_broken", critical, "A sink has stopped on a shard: a person must fix the cause"),
		lasting("sink_down", critical, "The ledger, the remote or Kafka is unreachable"),
		lasting("sink_opening", warning, "A worker has tried to open a sink for minutes, without success"),
	}, append(waits(l), letters(l)...)...)
}

// waits returns the rules for grants that wait.
func waits(l Limits) []Alert {
	sink := map[string]string{"sink": "kafka"}
	on := "on (" + each("sink") + ") "
	recently := func(m *metrics.Metric) string { // also while a sink catches up after the pause
		return per("max", "sink", fmt.Sprintf("max_over_time(%s[%s])", m.Name, span(l.Window))) + " > 0"
	}
	older := func(m *metrics.Metric) string {
		return fmt.Sprintf("%s > %g", per("max", "sink", m.Name), l.Old.Seconds())
	}
	progress := per("sum", "sink", fmt.Sprintf("increase(%s[%s])", metrics.WorkerDone.Name, span(l.Old)))
	lag, old := steady(metrics.LagGrants, shard3, "1"), steady(metrics.OldestSeconds, shard3, "301")
	workers := func(values string) [2]string { return at(metrics.Workers, kafka, values) }
	return []Alert{
		{Code: "grants_wait", Severity: critical, For: l.Soon,
			Summary: fmt.Sprintf("A sink has not finished a grant for more than %g minutes", l.Old.Minutes()),
			Expr: "(" + older(metrics.OldestSeconds) + " unless " + on + recently(metrics.SinkPausedCampaigns) + " or " +
				older(metrics.LagSeconds) + ") unless " + on + recently(metrics.SinkPaused) + " unless " + on + "(" +
				per("max", "sink", metrics.SinkRate.Name) + " > 0 and " + on + progress + " > 0)",
			Cases: []Case{fires("if a grant waits", old),
				fires("if the sink has a limit and delivers nothing", old, steady(metrics.SinkRate, kafka, "50"),
					steady(metrics.WorkerDone, kafka, "7000")),
				fires("if no worker reads, though a campaign is paused", old, steady(metrics.LagSeconds, shard3, "301"),
					steady(metrics.SinkPausedCampaigns, kafka+`,by="person"`, "1")),
				silent("below five minutes", steady(metrics.OldestSeconds, shard3, "299")),
				silent("during a pause", old, steady(metrics.SinkPaused, kafka, "1")),
				silent("after a pause", old, at(metrics.SinkPaused, kafka, "1x24 0x5")),
				silent("if only a paused campaign waits", old, steady(metrics.SinkPausedCampaigns, kafka+`,by="person"`, "1"),
					steady(metrics.LagSeconds, shard3, "0")),
				silent("if the sink has a limit and delivers", old, steady(metrics.SinkRate, kafka, "50"),
					at(metrics.WorkerDone, kafka, "0+3000x30"))},
			Labels: sink},
		{Code: "handler_hangs", Severity: critical, Summary: "A worker is stuck on a shard: the sink's handler does not return",
			Expr: fmt.Sprintf("time() - %s > %g", per("min", "instance, pod, sink, shard", metrics.WorkerLastStep.Name),
				l.Hang.Seconds()),
			Cases: []Case{fires("after six minutes", at(metrics.WorkerLastStep, shard3, "0+60x22 1380x8")),
				silent("if the worker works", at(metrics.WorkerLastStep, shard3, "0+60x30")),
				silent("after the worker has ended", at(metrics.WorkerLastStep, shard3, "0+60x15 stale"))},
			Labels: map[string]string{"sink": "kafka", "shard": "3"}},
		{Code: "no_worker", Severity: critical, Summary: "Grants wait for a sink, and none of its workers is alive", For: l.Start,
			Expr: fmt.Sprintf("%s > 0 and %s%s == 0 unless %[2]s%[4]s == 1", per("max", "sink", metrics.LagGrants.Name), on,
				per("max", "sink", metrics.Workers.Name), per("max", "sink", metrics.SinkPaused.Name)),
			Cases: []Case{fires("if all workers are dead", lag, workers("0x30")),
				silent("if a worker is alive", lag, workers("1x30")),
				silent("during a scale-up from zero", at(metrics.LagGrants, shard3, "0x26 1x3"), workers("0x30")),
				silent("on a quiet night without workers", steady(metrics.LagGrants, shard3, "0"), workers("0x30")),
				silent("during a pause", lag, workers("0x30"), steady(metrics.SinkPaused, kafka, "1"))},
			Labels: sink},
	}
}

// letters returns the rules for dead letters.
func letters(l Limits) []Alert {
	sink := map[string]string{"sink": "kafka"}
	dead, done := rises("sink", metrics.WorkerDead.Name, l), rises("sink", metrics.WorkerDone.Name, l)
	rate := func(dead, done string) [][2]string {
		return [][2]string{at(metrics.WorkerDead, kafka, dead), at(metrics.WorkerDone, kafka, done)}
	}
	return []Alert{
		{Code: "dead_letter", Severity: warning, Summary: "Dead letters wait for a person's decision",
			Expr: per("sum", "sink", per("max", "sink, shard", metrics.DeadLetters.Name)) + " > 0",
			Cases: []Case{fires("until it is decided", steady(metrics.DeadLetters, shard3, "1")),
				silent("without dead letters", steady(metrics.DeadLetters, shard3, "0"))},
			Labels: sink},
		{Code: "dead_letter_rate", Severity: critical,
			Summary: "More than one grant in a hundred becomes a dead letter", For: l.Soon,
			Expr: fmt.Sprintf("%s > %d and %[1]s / (%[1]s + %[3]s) > 0.01", dead, l.Letters, done),
			Cases: []Case{fires("in a rush", rate("0+20x30", "0+1000x30")...),
				silent("for single dead letters at night", rate("0x27 4x3", "0+1x30")...),
				silent("for few dead letters in a rush", rate("0+5x30", "0+1000x30")...)},
			Labels: sink},
	}
}

// rises returns a query for the increase of a counter within the window.
func rises(labels, series string, l Limits) string {
	return per("sum", labels, fmt.Sprintf("increase(%s[%s])", series, span(l.Window)))
}
