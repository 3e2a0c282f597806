package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An opening skips at least half a chunk after the last known seq. So a seq that a process reports late was skipped,
// and is not that of a later grant.
func TestSkipIsWide(t *testing.T) {
	t.Parallel()
	for boundary := int64(0); boundary <= 3*chunk; boundary += chunk {
		for known := max(0, boundary-3); known < boundary+3; known++ {
			for _, from := range []int64{known, known + chunk/2 - 1, known + chunk/2, known + chunk/2 + 1} {
				v := &Verdict{Redis: from}
				require.GreaterOrEqual(t, v.skipTo()-v.Known(), int64(chunk/2), "known %d", from)
				require.Zero(t, (v.skipTo()+1)%chunk, "known %d", from)
				lost := &Verdict{Redis: from, Seen: from + 1}
				require.Greater(t, lost.skipTo()-lost.Known(), int64(chunk), "known %d", from)
			}
		}
	}
}
