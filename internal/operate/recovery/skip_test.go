package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An opening skips at least half a chunk after the last known seq, and at most two and a half chunks.
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
				require.LessOrEqual(t, lost.skipTo()-lost.Known(), int64(2*chunk+chunk/2), "known %d", from)
			}
		}
	}
}

// 1,000 openings that each lost something keep the seq far below 2^53.
func TestSeqAfterAThousandOpenings(t *testing.T) {
	t.Parallel()
	v := &Verdict{}
	for range 1000 {
		v.Ledger = v.Redis + 1000
		v.Redis = v.skipTo()
	}
	require.Less(t, v.Redis, int64(1<<28))
}
