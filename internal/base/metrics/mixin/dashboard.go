package mixin

import (
	"encoding/json"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// panel is one graph of the dashboard.
type panel struct {
	title, unit string
	queries     [][2]string // expression, legend
}

// rate returns a query for the per-second rate of a counter, summed by labels.
func rate(m *metrics.Metric, by string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, m.Name)
}

// p99 returns a query for the 99th percentile of a histogram, by labels.
func p99(m *metrics.Metric, by string) string {
	if by != "" {
		by = ", " + by
	}
	return fmt.Sprintf("histogram_quantile(0.99, sum by (le%s) (rate(%s_bucket[$__rate_interval])))", by, m.Name)
}

// highest returns a query for a gauge of the deployment's state. Every process reports the same value, so the query
// takes the maximum.
func highest(m *metrics.Metric, by string) string { return fmt.Sprintf("max by (%s) (%s)", by, m.Name) }

// overShards returns a query for a gauge that has a value for each shard. Every process reports the same values: the
// query takes the maximum for each shard, then the sum over the shards.
func overShards(m *metrics.Metric, by string) string {
	return fmt.Sprintf("sum by (%[2]s) (max by (%[2]s, shard) (%[1]s))", m.Name, by)
}

func panels() []panel {
	bySink := func(title, unit, expr string) panel { return panel{title, unit, [][2]string{{expr, "{{sink}}"}}} }
	return []panel{
		{"Grabs a second", "reqps", [][2]string{{rate(metrics.Grabs, "outcome"), "{{outcome}}"}}},
		{"Time of a grab, 99 of 100", "s", [][2]string{{p99(metrics.GrabSeconds, ""), "grab"},
			{p99(metrics.CallSeconds, ""), "call to Redis"}}},
		{"Left", "short", [][2]string{{fmt.Sprintf("min by (campaign) (%s)", metrics.CampaignLeft.Name), "{{campaign}}"}}},
		{"Grabs a call", "short", [][2]string{{fmt.Sprintf(
			"sum(rate(%[1]s_sum[$__rate_interval])) / sum(rate(%[1]s_count[$__rate_interval]))", metrics.CallGrabs.Name),
			"mean"}}},
		{"HTTP answers a second", "reqps", [][2]string{{rate(metrics.HTTPRequests, "route, status"), "{{status}} {{route}}"}}},
		{"HTTP time, 99 of 100", "s", [][2]string{{p99(metrics.HTTPSeconds, "route"), "{{route}}"}}},
		bySink("Grants that wait", "short", overShards(metrics.LagGrants, "sink")),
		{"Oldest grant that waits", "s", [][2]string{{highest(metrics.OldestSeconds, "sink"), "{{sink}}, not finished"},
			{highest(metrics.LagSeconds, "sink"), "{{sink}}, not read"}}},
		bySink("Pending entries", "short", overShards(metrics.PendingEntries, "sink")),
		{"Parked entries", "short", [][2]string{{overShards(metrics.ParkedEntries, "sink, level"), "{{sink}} level {{level}}"}}},
		bySink("Dead letters", "short", overShards(metrics.DeadLetters, "sink")),
		bySink("Open claims", "short", overShards(metrics.OpenClaims, "sink")),
		{"Workers", "short", [][2]string{{highest(metrics.Workers, "sink"), "{{sink}}"},
			{highest(metrics.SinkPaused, "sink"), "{{sink}} is paused"},
			{fmt.Sprintf("sum by (sink) (%s)", metrics.RemoteBreaker.Name), "{{sink}}, breaker open"}}},
		{"Shards by state", "short", [][2]string{{fmt.Sprintf("sum by (sink, code) (%s)", metrics.SinkShards.Name),
			"{{sink}} {{code}}"}}},
		{"Attempts a second", "ops", [][2]string{{rate(metrics.SinkResults, "sink, result"), "{{sink}} {{result}}"}}},
		bySink("Time of a batch, 99 of 100", "s", p99(metrics.SinkSeconds, "sink")),
		{"Grants a second", "ops", [][2]string{{rate(metrics.WorkerDone, "sink"), "{{sink}}"}}},
		{"Ledger, 99 of 100", "s", [][2]string{{p99(metrics.LedgerSeconds, "kind"), "{{kind}}"}}},
		{"Kafka, 99 of 100", "s", [][2]string{{p99(metrics.KafkaSeconds, "request"), "{{request}}"}}},
		{"Errors a second", "ops", [][2]string{{rate(metrics.LedgerErrors, "kind, class"), "ledger {{kind}} {{class}}"},
			{rate(metrics.KafkaErrors, "request"), "Kafka {{request}}"}}},
		{"Memory of Redis", "bytes", [][2]string{{highest(metrics.RedisMemory, "server"), "{{server}}"},
			{highest(metrics.RedisMaxMemory, "server"), "{{server}} maximum"}}},
		{"Redis is healthy", "short", [][2]string{
			{fmt.Sprintf("min by (shard) (%s)", metrics.ShardOpen.Name), "shard {{shard}} is open"},
			{fmt.Sprintf("min by (server) (%s)", metrics.RedisPersists.Name), "{{server}} has an append-only file"},
			{fmt.Sprintf("min by (server) (%s)", metrics.RedisWrites.Name), "{{server}} can write"},
			{fmt.Sprintf("min by (server) (%s)", metrics.RedisKeeps.Name), "{{server}} evicts nothing"}}},
		{"Age of the last audit", "s", [][2]string{{"time() - max(" + metrics.AuditTime.Name + ")", "age"},
			{"max(" + metrics.AuditDifferences.Name + ")", "differences"}}},
		{"Alarms", "short", [][2]string{{fmt.Sprintf("sum by (code) (increase(%s[$__rate_interval])) > 0",
			metrics.Alarms.Name), "{{code}}"}}},
	}
}

// Dashboard returns the dashboard as JSON for Grafana's import.
func Dashboard() (string, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${source}"}
	var list []object
	for i, p := range panels() {
		var targets []object
		for k, q := range p.queries {
			targets = append(targets, object{"refId": string(rune('A' + k)), "datasource": source, "expr": q[0],
				"legendFormat": q[1], "exemplar": true})
		}
		list = append(list, object{"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source,
			"gridPos":     object{"x": i % 3 * 8, "y": i / 3 * 8, "w": 8, "h": 8},
			"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}}, "targets": targets})
	}
	text, err := json.MarshalIndent(object{
		"uid": "hongbao", "title": "Hongbao", "tags": []string{"hongbao"}, "schemaVersion": 39, "refresh": "10s",
		"time": object{"from": "now-1h", "to": "now"}, "timezone": "browser", "panels": list,
		"templating": object{"list": []object{{"name": "source", "label": "Prometheus", "type": "datasource",
			"query": "prometheus"}}},
	}, "", "  ")
	return string(text) + "\n", err
}
