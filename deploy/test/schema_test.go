package test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// free are the values that are not the chart's: parts of Hongbao's configuration and of Kubernetes' own objects.
var free = []string{"config", "podSecurityContext", "securityContext", "affinity"}

// The schema describes every value of values.yaml: it refuses an unknown key beside it, and a wrong type instead of it.
func TestSchemaDescribesEveryValue(t *testing.T) {
	t.Parallel()
	chart, err := loader.Load("../chart")
	require.NoError(t, err)
	refused, accepted := 0, []string(nil)
	var walk func(path []string, value any)
	try := func(path []string, value any) {
		values := map[string]any{}
		at := values
		for _, key := range path[:len(path)-1] {
			next := map[string]any{}
			at[key], at = next, next
		}
		at[path[len(path)-1]] = value
		if chartutil.ValidateAgainstSchema(chart, values) != nil {
			refused++
		} else {
			accepted = append(accepted, strings.Join(path, "."))
		}
	}
	walk = func(path []string, value any) {
		if len(path) > 0 && slices.Contains(free, path[0]) {
			return
		}
		children, _ := value.(map[string]any)
		if len(children) == 0 {
			try(path, map[string]any{"unknown": []any{[]any{}}})
			return
		}
		for _, key := range slices.Sorted(maps.Keys(children)) {
			walk(append(slices.Clone(path), key), children[key])
		}
		try(append(slices.Clone(path), "not-known"), map[string]any{}) // no name of a sink has a hyphen
	}
	walk(nil, chart.Values)
	require.Empty(t, accepted)
	require.Greater(t, refused, 100)
}
