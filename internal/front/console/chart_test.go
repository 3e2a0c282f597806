package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After an outage all waiting grants are paid within seconds. That cuts the line of the payments off, and does not make the
// one of the grants flat.
func TestPaymentsAfterAnOutageHideNoGrants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ granted, paid, top float64 }{{400, 100, 400}, {400, 700, 800}, {400, 13_000, 800}, {0, 13_000, 15_000}} {
		rates := []rate{{At: rainAt, Granted: new(c.granted), Settled: new(0.0)},
			{At: rainAt.Add(time.Second), Granted: new(c.granted), Settled: new(c.paid)}}
		drawn := chartOf(rates)
		require.InDelta(t, c.top, drawn.Top, 0, "%v", c)
		require.Contains(t, string(drawn.Paid), fmt.Sprintf("L1000.0 %.2f", 100-100*min(c.paid/c.top, 1)))
	}
}
