package store_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// watched counts the checks of a Watch and collects its alarms.
type watched struct {
	checks atomic.Int64 // checks that got a reply
	mu     sync.Mutex
	alarms []string
}

func (w *watched) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *watched) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w *watched) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil && cmds[0].Name() == "info" {
			w.checks.Add(1)
		}
		return err
	}
}

// watch starts a Watch with a client of its own, so that it has seen no event before.
func (b *bundle) watch(t *testing.T) *watched {
	t.Helper()
	rdb := redis.NewClient(b.rdb.Options())
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return watchBy(t, b.store.Over(rdb))
}

func watchBy(t *testing.T, st *store.Store) *watched {
	t.Helper()
	out := &watched{}
	st.Redis().AddHook(out)
	w := &store.Watch{
		Store: st, Every: 10 * time.Millisecond,
		Alarm: func(code string, err error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			if hongbao.ClassOf(err) != hongbao.ClassBroken {
				t.Errorf("%s is %s", code, hongbao.ClassOf(err))
			}
			out.alarms = append(out.alarms, code+": "+err.Error())
		},
	}
	testkit.Go(t, w.Run)
	return out
}

// sees waits until a check that began after this call is complete.
func (w *watched) sees(t *testing.T) {
	t.Helper()
	was := w.checks.Load()
	testkit.Eventually(t, 20*time.Second, func() bool { return w.checks.Load() >= was+3 }, "the watch looks")
}

// raises waits for an alarm, checks that it is the only one, and removes it.
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

// A process gets answers to grabs, and Redis loses data before the first check of the process's watch. The watch
// raises an alarm.
func TestFirstLookAfterALoss(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(b *bundle) error
		says string
	}{
		"emptied": {func(b *bundle) error { return b.rdb.FlushAll(t.Context()).Err() }, "had come to event 3, and is gone"},
		"came back with less": {func(b *bundle) error { return b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", 2).Err() },
			"had come to event 3 of epoch 1, and came back at event 2 of epoch 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
			b.load(t, spec("rain", 10))
			b.grab(t, "rain", "u1", "u2", "u3")
			require.NoError(t, c.lose(b))
			w := watchBy(t, b.store)
			w.raises(t, store.LostData, c.says)
			w.sees(t)
			require.Empty(t, w.alarms, "it is raised once")
		})
	}
}

// Redis loses its latest events, then all data. Each time the next check raises an alarm.
func TestWatchTellsOfLostData(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	b.load(t, spec("rain", 10))
	w := b.watch(t)
	b.grab(t, "rain", "u1", "u2", "u3")
	w.sees(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", 2).Err())
	w.raises(t, store.LostData, "had come to event 3 of epoch 1", "came back at event 2 of epoch 1")
	w.sees(t)
	require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
	w.raises(t, store.LostData, "had come to event 2, and is gone")
}

// Settings change at run time so that receipts could be lost. The watch raises an alarm that says where to fix the
// setting.
func TestWatchTellsOfSettings(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	w := b.watch(t)
	w.sees(t)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	w.raises(t, store.Evicts, "allkeys-lru", "redis.conf")
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendonly", "no").Err())
	w.raises(t, store.LostAppendOnly, "redis.conf", "CONFIG SET", "has lost its data")
}

// Redis is killed and restarts with its append-only file. The watch freezes the shard but raises no alarm, because no
// data is lost.
func TestWatchOverARestart(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	b := setupOn(t, server.Client(t))
	b.load(t, spec("rain", 10))
	w := b.watch(t)
	b.grab(t, "rain", "u1", "u2", "u3")
	w.sees(t)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart())
	w.sees(t)
	head, err := b.k.Head(t.Context())
	require.NoError(t, err)
	require.True(t, head.Frozen, "the watch has frozen the shard after the restart")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.alarms)
}
