package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// After a page, work rests for as long as the page took longer than the shortest one; four times as long if Redis is busy,
// but never over a quarter of a second.
func TestPagesRest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ least, took, rest time.Duration }{
		{300 * time.Microsecond, 300 * time.Microsecond, shortestRest},
		{time.Millisecond, 5 * time.Millisecond, 4 * time.Millisecond},
		{time.Millisecond, time.Millisecond + busyWait, 20 * time.Millisecond},
		{time.Millisecond, 41 * time.Millisecond, 160 * time.Millisecond},
		{time.Millisecond, 3 * time.Second, 250 * time.Millisecond},
		{80 * time.Millisecond, 81 * time.Millisecond, time.Millisecond}, // somebody far away
	} {
		t.Run(c.took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pace{least: c.least}
				begun := time.Now()
				for range 3 {
					require.NoError(t, p.page(t.Context(), func() error { retry.Pause(t.Context(), c.took); return nil }))
				}
				require.Equal(t, 3*c.took+2*c.rest, time.Since(begun), "the first page waits for nothing")

				retry.Pause(t.Context(), 2*c.rest) // as work does that computes between two pages
				begun = time.Now()
				require.NoError(t, p.page(t.Context(), func() error { return nil }))
				require.Zero(t, time.Since(begun), "its own pause counts as its rest")
			})
		})
	}
}

// All work of a process on a shard takes turns, so more work is no more load. Work whose caller has left gives its turn
// up, and a page that failed counts as one, too.
func TestPagesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const least = time.Microsecond
		p := pace{least: least}
		begun := time.Now()
		for range 10 {
			go func() {
				_ = p.page(t.Context(), func() error { retry.Pause(t.Context(), 10*time.Millisecond); return errors.New("redis is away") })
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.page(ctx, func() error { t.Error("its caller has left"); return nil }), context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
		require.NoError(t, p.page(t.Context(), func() error { return nil }))
		require.Equal(t, 10*(10*time.Millisecond+4*(10*time.Millisecond-least)), time.Since(begun))
	})
}

// One Redis has one thread, however many shards it has. A cluster's shards are on several servers.
func TestShardsOfAServerShareItsPace(t *testing.T) {
	t.Parallel()
	alone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	for _, client := range []redis.UniversalClient{alone, cluster} {
		st, err := New(Config{Redis: client, Space: hongbao.Space{Prefix: "hb", Shards: 2}, Deployment: "d"})
		require.NoError(t, err)
		require.Equal(t, client == alone, st.shards[0].state.pace == st.shards[1].state.pace)
		require.NoError(t, client.Close())
	}
}
