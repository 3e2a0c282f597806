package test

import (
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hongbao-project/hongbao/internal/metrics"
)

// scaledObject has the fields of KEDA's that the chart uses; its own package would bring in a whole operator.
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

// checkQueries wants metrics that Hongbao exports, the maximum of what all processes tell, and one worker where nobody
// tells anything. Lag, pending, parked, age and frozen shards must count.
func (r *rendered) checkQueries(o *scaledObject) {
	var all strings.Builder
	for _, trigger := range o.Spec.Triggers {
		require.Regexp(r.t, ` or vector\(`+trigger.Metadata.Threshold+`\)$`, trigger.Metadata.Query)
		require.Contains(r.t, trigger.Metadata.Query, "max")
		require.Equal(r.t, "false", trigger.Metadata.IgnoreNullValues)
		all.WriteString(trigger.Metadata.Query)
	}
	require.Positive(r.t, o.Spec.Fallback.Replicas)
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`hongbao_\w+`).FindAllString(all.String(), -1) {
		names[m] = true
	}
	require.Equal(r.t, map[string]bool{metrics.LagGrants.Name: true, metrics.OldestSeconds.Name: true,
		metrics.PendingEntries.Name: true, metrics.ParkedEntries.Name: true, metrics.ShardOpen.Name: true}, names)
}
