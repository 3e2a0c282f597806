package shards_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// watched is a Watch and what it told.
type watched struct {
	mu     sync.Mutex
	alarms []string
	last   *shards.Sight
	runs   map[string]bool
}

func (b *bundle) watch(t *testing.T) *watched {
	t.Helper()
	out := &watched{runs: map[string]bool{}}
	w := &shards.Watch{
		Redis: b.rdb, Space: b.space, Every: 10 * time.Millisecond,
		Seen: func(_ context.Context, now *shards.Sight, before map[int]*shards.Sight) {
			out.mu.Lock()
			defer out.mu.Unlock()
			if before[0] != out.last {
				t.Errorf("the look before is not the last one")
			}
			out.last, out.runs[now.Server.RunID] = now, true
		},
		Alarm: func(code string, err error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			if hongbao.ClassOf(err) != hongbao.Broken {
				t.Errorf("%s is %s", code, hongbao.ClassOf(err))
			}
			out.alarms = append(out.alarms, code+": "+err.Error())
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return out
}

// reaches waits until a look has seen the shard at a seq.
func (w *watched) reaches(t *testing.T, seq int64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.last != nil && w.last.Heads[0].Seq == seq
	}, "the watch sees seq %d", seq)
}

// raises waits for the one alarm there is, and takes it.
func (w *watched) raises(t *testing.T, parts ...string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.alarms) > 0
	}, "an alarm comes")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.alarms, 1)
	for _, part := range parts {
		require.Contains(t, w.alarms[0], part)
	}
	w.alarms = nil
}

// A Redis that comes back with less than it had raises an alarm within a look: emptied, or from an older file.
func TestWatchTellsOfLostData(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	b.load(t, spec("rain", 10))
	w := b.watch(t)
	b.grab(t, "rain", "u1", "u2", "u3")
	w.reaches(t, 3)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Meta(), "seq", 2).Err())
	w.raises(t, shards.LostData, "had come to event 3 of epoch 1", "came back at event 2 of epoch 1")
	w.reaches(t, 2)
	require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
	w.raises(t, shards.LostData, "had come to event 2, and is gone")
}

// Settings that would lose receipts raise an alarm when they change under way, and say where to mend them.
func TestWatchTellsOfSettings(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	w := b.watch(t)
	w.reaches(t, 0)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	w.raises(t, shards.Evicts, "allkeys-lru", "redis.conf")
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendonly", "no").Err())
	w.raises(t, shards.LostAppendOnly, "redis.conf", "CONFIG SET", "has lost its data")
}

// A restart with its append-only file is no alarm: the watch sees another run of the server with all that was there.
func TestWatchOverARestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	b := setupOn(t, server.Client(t))
	b.load(t, spec("rain", 10))
	w := b.watch(t)
	b.grab(t, "rain", "u1", "u2", "u3")
	w.reaches(t, 3)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart())
	testkit.Eventually(t, 20*time.Second, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.runs) == 2
	}, "the watch sees the new run")
	w.reaches(t, 3)
	require.Empty(t, w.alarms)
}
