package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLasts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 7 * time.Millisecond: "7ms", 3240 * time.Millisecond: "3.2s", 160 * time.Second: "2m40s", 2 * time.Minute: "2m",
		10*time.Minute + 5*time.Second: "10m5s", time.Hour: "1h0m", 70 * time.Minute: "1h10m",
	} {
		require.Equal(t, want, lasts(d))
	}
}
