package shards_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/shards"
)

// To the stream a clock that was set back by an hour (F60) looks like a last id that is an hour ahead. Grabs go on, and
// ids rise with the seqs: a reader that goes on behind the last id that it saw misses none.
func TestIDsRiseWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1")
	now, err := b.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	ahead := now.Add(time.Hour).UnixMilli()
	require.NoError(t, b.rdb.Do(t.Context(), "XSETID", b.k.Events(), fmt.Sprintf("%d-7", ahead)).Err())
	b.grab(t, "rain", "u2")
	b.grab(t, "rain", "u3")
	entries, err := shards.Of(b.rdb, b.k).Entries(t.Context(), fmt.Sprintf("(%d-7", ahead), "+")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for i := range entries {
		require.Equal(t, fmt.Sprintf("%d-%d", ahead, 8+i), entries[i].ID, "the clock's time is behind it")
		require.Equal(t, int64(2+i), entries[i].Seq)
		require.Less(t, entries[i].Time.UnixMilli(), ahead, "a grant's time is the clock's")
	}
}
