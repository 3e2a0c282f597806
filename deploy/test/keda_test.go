package test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// scaledObject has the fields of KEDA's ScaledObject that the chart uses. Importing KEDA's own package would pull in a
// whole operator.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		PollingInterval int `json:"pollingInterval"`
		CooldownPeriod  int `json:"cooldownPeriod"`
		Fallback        struct {
			FailureThreshold int `json:"failureThreshold"`
			Replicas         int `json:"replicas"`
		} `json:"fallback"`
		Triggers []struct {
			Type     string `json:"type"`
			Name     string `json:"name"`
			Metadata struct {
				ServerAddress    string `json:"serverAddress"`
				Query            string `json:"query"`
				Threshold        string `json:"threshold"`
				IgnoreNullValues string `json:"ignoreNullValues"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// checkQueries requires that the queries use exactly these metrics of Hongbao: lag, pending entries, parked entries,
// age and open shards, and for sink balance also the unfinished work in the ledger.
func (r *rendered) checkQueries(o *scaledObject) {
	var all strings.Builder
	for _, trigger := range o.Spec.Triggers {
		require.Equal(r.t, "false", trigger.Metadata.IgnoreNullValues)
		all.WriteString(trigger.Metadata.Query)
	}
	require.Positive(r.t, o.Spec.Fallback.Replicas)
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`hongbao_\w+`).FindAllString(all.String(), -1) {
		names[m] = true
	}
	want := map[string]bool{metrics.LagGrants.Name: true, metrics.OldestSeconds.Name: true,
		metrics.PendingEntries.Name: true, metrics.ParkedEntries.Name: true, metrics.ShardOpen.Name: true}
	if strings.HasSuffix(o.Name, "-balance") {
		want[metrics.Unfinished.Name] = true
	}
	require.Equal(r.t, want, names)
}

// reported contains the metrics that Hongbao's processes report to Prometheus: the value of each series. A series has
// no labels of the reporting process.
type reported map[string]float64

// The series of sink balance's lag on shards 0 and 1.
const lag0, lag1 = `hongbao_sink_lag_grants{sink="balance",shard="0"`, `hongbao_sink_lag_grants{sink="balance",shard="1"`

// The series of parked entries on two shards, with different levels.
const (
	parked0 = `hongbao_sink_parked_entries{sink="balance",shard="0",level="0"`
	parked1 = `hongbao_sink_parked_entries{sink="balance",shard="1",level="1"`
)

// idle returns the metrics of a deployment with two shards and no work.
func idle() reported {
	return reported{
		lag0: 0, lag1: 0,
		`hongbao_sink_lag_grants{sink="kafka",shard="0"`:        90_000, // of another sink
		`hongbao_sink_oldest_seconds{sink="balance",shard="0"`:  0,
		`hongbao_sink_oldest_seconds{sink="balance",shard="1"`:  0,
		`hongbao_sink_pending_entries{sink="balance",shard="0"`: 0,
		`hongbao_sink_pending_entries{sink="balance",shard="1"`: 0,
		parked0: 0, parked1: 0,
		`hongbao_shard_open{shard="0"`: 1, `hongbao_shard_open{shard="1"`: 1,
		`hongbao_ledger_unfinished{kind="top_ups"`: 0, `hongbao_ledger_unfinished{kind="credits"`: 0,
	}
}

// series returns the input for promtool: the same series from two processes, and two other busy deployments, one in the
// same namespace and one in another.
func (t reported) series() (list []map[string]string) {
	for name, value := range t {
		busy := "5000000x10"
		if strings.HasPrefix(name, metrics.ShardOpen.Name) {
			busy = "0x10"
		}
		for process, values := range map[string]string{
			`deployment="prod",namespace="money",pod="a"`:  fmt.Sprintf("%gx10", value),
			`deployment="prod",namespace="money",pod="b"`:  fmt.Sprintf("%gx10", value),
			`deployment="prod",namespace="other",pod="c"`:  busy,
			`deployment="other",namespace="money",pod="d"`: busy,
		} {
			list = append(list, map[string]string{"series": name + "," + process + "}", "values": values})
		}
	}
	return list
}

// evaluates runs promtool over the reported series. It requires that each expression in want has the given value.
func evaluates(t *testing.T, of reported, want map[string]float64) {
	t.Helper()
	var tests []map[string]any
	for expr, value := range want {
		tests = append(tests, map[string]any{"expr": expr, "eval_time": "5m",
			"exp_samples": []map[string]any{{"labels": "{}", "value": value}}})
	}
	text, err := yaml.Marshal(map[string]any{"tests": []any{map[string]any{"interval": "1m", "input_series": of.series(),
		"promql_expr_test": tests}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "queries.test.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", path).CombinedOutput()
	require.NoError(t, err, "promtool (scripts/setup.sh installs it): %s", out)
	require.Contains(t, string(out), "SUCCESS")
}

// Each trigger of the ScaledObject for sink balance has the right value for what the processes report.
func TestQueriesOfKEDA(t *testing.T) {
	t.Parallel()
	r := newRendered(t, readValues(t, "../chart/ci/production-values.yaml"))
	queries := map[string]string{}
	for _, trigger := range named[*scaledObject](r, "hongbao-work-balance").Spec.Triggers {
		queries[trigger.Name] = trigger.Metadata.Query
	}
	lags := map[string]float64{"lag": 110_000}
	unfinished, frozen, inLedger := map[string]float64{"unfinished": 1}, map[string]float64{"frozen": 1},
		map[string]float64{"ledger": 1}
	for name, c := range map[string]struct {
		reported reported
		want     map[string]float64 // triggers whose value is not 0
	}{
		"idle":            {reported{}, nil},
		"lag of 2 shards": {reported{lag0: 60_000, lag1: 50_000}, lags},
		"pending":         {reported{`hongbao_sink_pending_entries{sink="balance",shard="1"`: 4}, unfinished},
		"parked":          {reported{parked1: 1}, unfinished},
		"young":           {reported{`hongbao_sink_oldest_seconds{sink="balance",shard="0"`: 0.01}, unfinished},
		"frozen":          {reported{`hongbao_shard_open{shard="1"`: 0}, frozen},
		"top-ups":         {reported{`hongbao_ledger_unfinished{kind="top_ups"`: 2}, inLedger},
		"credits":         {reported{`hongbao_ledger_unfinished{kind="credits"`: 1}, inLedger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, want := idle(), map[string]float64{}
			maps.Copy(all, c.reported)
			for trigger, query := range queries {
				want[query] = c.want[trigger]
			}
			require.Len(t, want, 4)
			evaluates(t, all, want)
		})
	}
	t.Run("no metrics", func(t *testing.T) {
		t.Parallel()
		evaluates(t, reported{}, map[string]float64{queries["lag"]: 50_000, queries["unfinished"]: 1, queries["frozen"]: 1,
			queries["ledger"]: 0})
	})
}

// The Prometheus adapter rule in docs/deploy.md counts each shard of this deployment exactly once. The rule's name
// matches the metric of the chart's HorizontalPodAutoscaler.
func TestRuleOfHPA(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(externalRules:.*?)```").FindSubmatch(text)
	require.NotNil(t, block)
	var rules struct {
		ExternalRules []struct {
			SeriesQuery string `json:"seriesQuery"`
			Name        struct {
				As string `json:"as"`
			} `json:"name"`
			Resources struct {
				Overrides map[string]map[string]string `json:"overrides"`
			} `json:"resources"`
			MetricsQuery string `json:"metricsQuery"`
		} `json:"externalRules"`
	}
	require.NoError(t, yaml.UnmarshalStrict(block[1], &rules))
	require.Len(t, rules.ExternalRules, 1)
	rule := rules.ExternalRules[0]
	require.Equal(t, map[string]map[string]string{"namespace": {"resource": "namespace"}}, rule.Resources.Overrides)
	r := newRendered(t, withValues(t, "work: {autoscaling: {kind: hpa}}\nconfig: {deployment: {id: prod}}"))
	metric := named[*autoscalingv2.HorizontalPodAutoscaler](r, "hongbao-work-balance").Spec.Metrics[0].External.Metric
	require.Equal(t, rule.Name.As, metric.Name)
	require.Equal(t, map[string]string{"deployment": "prod", "sink": "balance"}, metric.Selector.MatchLabels)
	all := idle()
	all[lag0], all[lag1] = 60_000, 50_000
	query := strings.NewReplacer("<<.Series>>", rule.SeriesQuery,
		"<<.LabelMatchers>>", `namespace="money",deployment="prod",sink="balance"`).Replace(rule.MetricsQuery) // the adapter substitutes these
	evaluates(t, all, map[string]float64{"sum(" + query + ")": 110_000})
}
