package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Retry-After never makes a wait negative.
func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "1", "-1", "99999999999999999999", "Sat, 28 Nov 2026 00:00:00 GMT", "Sat, 28 Nov 9999 00:00:00 GMT"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.GreaterOrEqual(t, retryAfter(text), time.Duration(0))
	})
}
