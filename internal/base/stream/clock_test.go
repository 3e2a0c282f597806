package stream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The age is the greater one of two clocks.
func TestAge(t *testing.T) {
	t.Parallel()
	then := time.Now()
	require.Equal(t, time.Minute, Age(then.Add(time.Minute), then))
	require.Equal(t, time.Hour, Age(then, then.Round(0).Add(-time.Hour)), "without a monotonic reading, the wall clock counts")
}
