package dedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The lease is over if one of the two clocks says so.
func TestLeaseIsOver(t *testing.T) {
	t.Parallel()
	from := time.Now()
	require.False(t, leaseIsOver(from, from.Add(59*time.Second), time.Minute))
	require.True(t, leaseIsOver(from, from.Add(time.Minute), time.Minute))
	suspended := from.Round(0).Add(-time.Hour) // without a monotonic reading, only the wall clock is compared
	require.True(t, leaseIsOver(suspended, from, time.Minute))
}
