package store_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The clock of Redis is set back by an hour (F60), so the stream's last id is an hour ahead. Grabs still succeed, and
// their entry ids rise with the seqs. A reader that continues after the last id misses no entry.
func TestIDsRiseWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1")
	now, err := b.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	ahead := now.Add(time.Hour).UnixMilli()
	require.NoError(t, b.rdb.Do(t.Context(), "XSETID", b.k.Keys.Events(), fmt.Sprintf("%d-7", ahead)).Err())
	b.grab(t, "rain", "u2")
	b.grab(t, "rain", "u3")
	entries, err := b.k.Entries(t.Context(), fmt.Sprintf("(%d-7", ahead), "+")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for i := range entries {
		require.Equal(t, fmt.Sprintf("%d-%d", ahead, 8+i), entries[i].ID, "the clock is behind the last id")
		require.Equal(t, int64(2+i), entries[i].Seq)
		require.Less(t, entries[i].Time.UnixMilli(), ahead, "the grant has the time of the clock, not of the id")
	}
}

// terms records the start of the validity of the latest terms that grab.lua returned, in ms.
type terms struct{ since string }

func (c *terms) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *terms) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *terms) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(interface{ Val() any }); ok {
			if list, ok := reply.Val().([]any); ok && len(list) > 9 && list[0] == "T" {
				c.since = fmt.Sprint(list[3])
			}
		}
		return err
	}
}

// The terms that a grab returns are valid from the call on, not earlier. Otherwise, if the clock goes back over
// midnight, they would be used for the day before.
func TestTermsHoldFromNowOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 100))
	b.grab(t, "rain", "first") // loads the script into the server
	returned := &terms{}
	b.rdb.AddHook(returned)
	for i := range 30 {
		now, err := b.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		b.grab(t, "rain", fmt.Sprint("u", i))
		since, err := strconv.ParseInt(returned.since, 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, since, now.UnixMilli())
		returned.since = ""
	}
}
