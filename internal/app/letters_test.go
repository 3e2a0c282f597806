package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/deadletter"
)

// Each sink has a handler of its own; who goes on after a letter begins with the letter's sink.
func TestPickBySink(t *testing.T) {
	t.Parallel()
	both := deadletter.Filter{Sinks: []string{"balance", "kafka"}, Class: "permanent"}
	one := func(sink string) deadletter.Filter {
		return deadletter.Filter{Sinks: []string{sink}, Class: "permanent"}
	}
	require.Equal(t, []deadletter.Pick{{Filter: one("balance")}, {Filter: one("kafka")}},
		bySink(&deadletter.Pick{Filter: both}))
	require.Equal(t, []deadletter.Pick{{Filter: one("balance"), After: "balance/0/1-1"}, {Filter: one("kafka")}},
		bySink(&deadletter.Pick{Filter: both, After: "balance/0/1-1"}))
	require.Equal(t, []deadletter.Pick{{Filter: one("kafka"), After: "kafka/0/1-1"}},
		bySink(&deadletter.Pick{Filter: both, After: "kafka/0/1-1"}))
	require.Equal(t, []deadletter.Pick{{Filter: one("kafka"), IDs: []string{"kafka/0/1-1"}}},
		bySink(&deadletter.Pick{Filter: both, IDs: []string{"kafka/0/1-1"}}))
}
