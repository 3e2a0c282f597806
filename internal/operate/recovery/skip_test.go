package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// An opening skips at least half a chunk after the last known seq, and at most two and a half chunks.
func TestSkipIsWide(t *testing.T) {
	t.Parallel()
	for boundary := int64(0); boundary <= 3*chunk; boundary += chunk {
		for known := max(0, boundary-3); known < boundary+3; known++ {
			for _, from := range []int64{known, known + chunk/2 - 1, known + chunk/2, known + chunk/2 + 1} {
				v := &ShardReport{Redis: from}
				require.GreaterOrEqual(t, v.skipTo()-v.Known(), int64(chunk/2), "known %d", from)
				require.Zero(t, (v.skipTo()+1)%chunk, "known %d", from)
				lost := &ShardReport{Redis: from, Seen: from + 1}
				require.Greater(t, lost.skipTo()-lost.Known(), int64(chunk), "known %d", from)
				require.LessOrEqual(t, lost.skipTo()-lost.Known(), int64(2*chunk+chunk/2), "known %d", from)
			}
		}
	}
}

// The topic's times come from other clocks than Redis' last write.
func TestTopicSince(t *testing.T) {
	t.Parallel()
	now := time.Now()
	earlier := func(at time.Time) time.Time { return at.Add(-time.Minute) }
	for _, c := range []struct {
		wrote time.Time
		ahead time.Duration
		want  time.Time
	}{
		{now.Add(-time.Hour), 0, now.Add(-time.Hour - time.Minute)},
		{now.Add(8*time.Hour - time.Second), 8 * time.Hour, now.Add(-time.Second - time.Minute)},
		{now.Add(-time.Hour), -10 * time.Second, now.Add(-time.Hour - time.Minute)}, // this worker's clock may be wrong
		{now.Add(time.Hour), 0, time.Time{}},
		{time.UnixMilli(0), 0, time.Time{}},
		{time.UnixMilli(0), 8 * time.Hour, time.Time{}},
	} {
		require.Equal(t, c.want, topicSince(c.wrote, &store.LastWrite{Ahead: c.ahead}, earlier), "%+v", c)
	}
}

// 1,000 openings that each lost something keep the seq far below 2^53.
func TestSeqAfterAThousandOpenings(t *testing.T) {
	t.Parallel()
	v := &ShardReport{}
	for range 1000 {
		v.Ledger = v.Redis + 1000
		v.Redis = v.skipTo()
	}
	require.Less(t, v.Redis, int64(1<<28))
}
