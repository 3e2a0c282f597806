package mixin

import (
	"encoding/json"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// panel is one graph of the dashboard.
type panel struct {
	title, unit string
	queries     [][2]string // expression, legend
}

// of returns the series of the deployment that the dashboard shows.
func of(series string) string { return series + `{namespace=~"$namespace",deployment=~"$deployment"}` }

// rate returns a query for the per-second rate of a counter, summed by labels.
func rate(m *metrics.Metric, by string) string {
	return per("sum", by, "rate("+of(m.Name)+"[$__rate_interval])")
}

// p99 returns a query for the 99th percentile of a histogram, by labels.
func p99(m *metrics.Metric, by string) string {
	return "histogram_quantile(0.99, " + per("sum", strings.TrimSuffix("le, "+by, ", "),
		"rate("+of(m.Name+"_bucket")+"[$__rate_interval])") + ")"
}

// highest returns a query for a gauge of the deployment's state. Every process reports the same value, so the query
// takes the maximum.
func highest(m *metrics.Metric, by string) string { return per("max", by, of(m.Name)) }

func lowest(m *metrics.Metric, by string) string { return per("min", by, of(m.Name)) }

// overShards returns a query for a gauge that has a value for each shard. Every process reports the same values: the
// query takes the maximum for each shard, then the sum over the shards.
func overShards(m *metrics.Metric, by string) string { return per("sum", by, highest(m, by+", shard")) }

func panels() []panel {
	bySink := func(title, unit, expr string) panel { return panel{title, unit, [][2]string{{expr, "{{sink}}"}}} }
	grabs := func(part string) string {
		return per("sum", "", "rate("+of(metrics.CallGrabs.Name+part)+"[$__rate_interval])")
	}
	return []panel{
		{"Grabs a second", "reqps", [][2]string{{rate(metrics.Grabs, "outcome"), "{{outcome}}"}}},
		{"Time of a grab, 99 of 100", "s", [][2]string{{p99(metrics.GrabSeconds, ""), "grab"},
			{p99(metrics.CallSeconds, ""), "call to Redis"}}},
		{"Left", "short", [][2]string{{lowest(metrics.CampaignLeft, "campaign"), "{{campaign}}"}}},
		{"Grabs a call", "short", [][2]string{{grabs("_sum") + " / " + grabs("_count"), "mean"}}},
		{"HTTP answers a second", "reqps", [][2]string{{rate(metrics.HTTPRequests, "listener, route, status"),
			"{{listener}} {{status}} {{route}}"}}},
		{"HTTP time, 99 of 100", "s", [][2]string{{p99(metrics.HTTPSeconds, "listener, route"), "{{listener}} {{route}}"}}},
		bySink("Grants that wait", "short", overShards(metrics.LagGrants, "sink")),
		{"Oldest grant that waits", "s", [][2]string{{highest(metrics.OldestSeconds, "sink"), "{{sink}}, not finished"},
			{highest(metrics.LagSeconds, "sink"), "{{sink}}, not read"}}},
		bySink("Pending entries", "short", overShards(metrics.PendingEntries, "sink")),
		{"Parked entries", "short", [][2]string{{overShards(metrics.ParkedEntries, "sink, level"), "{{sink}} level {{level}}"}}},
		bySink("Dead letters", "short", overShards(metrics.DeadLetters, "sink")),
		bySink("Open claims", "short", overShards(metrics.OpenClaims, "sink")),
		{"Workers", "short", [][2]string{{highest(metrics.Workers, "sink"), "{{sink}}"},
			{highest(metrics.SinkPaused, "sink"), "{{sink}} is paused"},
			{highest(metrics.SinkPausedCampaigns, "sink, by"), "{{sink}}, campaigns paused by {{by}}"},
			{per("sum", "sink", of(metrics.RemoteBreaker.Name)), "{{sink}}, breaker open"}}},
		{"Shards by state", "short", [][2]string{{per("sum", "sink, code", of(metrics.SinkShards.Name)), "{{sink}} {{code}}"}}},
		{"Attempts a second", "ops", [][2]string{{rate(metrics.SinkResults, "sink, result"), "{{sink}} {{result}}"}}},
		bySink("Time of a batch, 99 of 100", "s", p99(metrics.SinkSeconds, "sink")),
		{"Grants a second", "ops", [][2]string{{rate(metrics.WorkerDone, "sink"), "{{sink}}"},
			{highest(metrics.SinkRate, "sink") + " > 0", "{{sink}}, limit"}}},
		{"Ledger, 99 of 100", "s", [][2]string{{p99(metrics.LedgerSeconds, "kind"), "{{kind}}"}}},
		{"Kafka, 99 of 100", "s", [][2]string{{p99(metrics.KafkaSeconds, "request"), "{{request}}"}}},
		{"Errors a second", "ops", [][2]string{{rate(metrics.LedgerErrors, "kind, class"), "ledger {{kind}} {{class}}"},
			{rate(metrics.KafkaErrors, "request"), "Kafka {{request}}"}}},
		{"Memory of Redis", "bytes", [][2]string{{highest(metrics.RedisMemory, "server"), "{{server}}"},
			{highest(metrics.RedisMaxMemory, "server"), "{{server}} maximum"}}},
		{"Redis is healthy", "short", [][2]string{{lowest(metrics.ShardOpen, "shard"), "shard {{shard}} is open"},
			{lowest(metrics.RedisPersists, "server"), "{{server}} has an append-only file"},
			{lowest(metrics.RedisWrites, "server"), "{{server}} can write"},
			{lowest(metrics.RedisKeeps, "server"), "{{server}} evicts nothing"},
			{lowest(metrics.RedisReplicas, "server"), "replicas of {{server}}"}}},
		{"Oldest unfinished work in the ledger", "s", [][2]string{{highest(metrics.UnfinishedSeconds, "kind"), "{{kind}}"}}},
		{"Age of the last audit", "s", [][2]string{{"time() - " + highest(metrics.AuditTime, ""), "age"},
			{highest(metrics.AuditDifferences, ""), "differences"}}},
		{"Alarms", "short", [][2]string{{per("sum", "code", "increase("+of(metrics.Alarms.Name)+"[$__rate_interval])") + " > 0",
			"{{code}}"}}},
	}
}

// variable returns a variable of the dashboard: a label of the deployments.
func variable(source map[string]any, label, query string, all bool) map[string]any {
	v := map[string]any{"name": label, "label": label, "type": "query", "datasource": source, "refresh": 2,
		"query": map[string]any{"query": "label_values(" + query + ", " + label + ")", "refId": label}, "includeAll": all}
	if all {
		v["allValue"] = ".*" // also without the label
	}
	return v
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
		"templating": object{"list": []object{
			{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
			variable(source, "namespace", metrics.BuildInfo.Name, true),
			variable(source, "deployment", metrics.BuildInfo.Name+`{namespace=~"$namespace"}`, false)}},
	}, "", "  ")
	return string(text) + "\n", err
}
