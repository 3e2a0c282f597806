package consumer

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

func plainConfig(t *testing.T) Config {
	t.Helper()
	c := DefaultConfig()
	rdb := redis.NewClient(clientOptions("127.0.0.1:1")) // never connected to
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c.Deployment = at(t, store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "unit", Shards: 1}})
	c.Group, c.Consumer, c.Handler = group, "w", newSink(nil)
	return c
}

func TestDefaultConfigIsComplete(t *testing.T) {
	t.Parallel()
	_, err := New(plainConfig(t))
	require.NoError(t, err)
}

func TestConfigListsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	for _, name := range []string{
		"Deployment", "Handler", "group", "BatchGrants", "MaxEntries", "MaxAttempts", "Block", "Poll", "Lease",
		"HandleTimeout", "Backoff",
	} {
		require.ErrorContains(t, err, name)
	}
}

func TestConfigBounds(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Config){
		"parking consumer":  func(c *Config) { c.Consumer = "_retry/1" },
		"consumer space":    func(c *Config) { c.Consumer = "a b" },
		"group":             func(c *Config) { c.Group = "a:b" },
		"batch":             func(c *Config) { c.BatchGrants = 100_001 },
		"entries":           func(c *Config) { c.MaxEntries = 10_001 },
		"one attempt":       func(c *Config) { c.MaxAttempts = 1 },
		"attempts":          func(c *Config) { c.MaxAttempts = 1_001 },
		"block permanently": func(c *Config) { c.Block = 0 },
		"poll":              func(c *Config) { c.Poll = time.Hour },
		"lease":             func(c *Config) { c.Lease = 99 * time.Millisecond },
		"handle timeout":    func(c *Config) { c.HandleTimeout = 2 * time.Hour },
		"drain":             func(c *Config) { c.DrainTimeout = -1 },
		"backoff":           func(c *Config) { c.Backoff = 0 },
		"max backoff":       func(c *Config) { c.MaxBackoff = c.Backoff - 1 },
		"read timeout":      func(c *Config) { c.Block = 5 * time.Second },
		"too few connections": func(c *Config) {
			c.Deployment = at(t, store.Config{Redis: withPool(t, 1), Space: hongbao.Space{Prefix: "unit", Shards: 2}})
		},
	} {
		cfg := plainConfig(t)
		spoil(&cfg)
		_, err := New(cfg)
		require.Error(t, err, name)
	}
}

func withPool(t *testing.T, n int) *redis.Client {
	t.Helper()
	opts := clientOptions("127.0.0.1:1")
	opts.PoolSize = n
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

func TestTrimmerConfigListsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewTrimmer(TrimmerConfig{Retention: -1, MaxEvents: -1})
	for _, name := range []string{"Deployment", "no groups", "Every", "Retention", "ForgetAfter",
		"MaxEvents"} {
		require.ErrorContains(t, err, name)
	}
	cfg := DefaultTrimmerConfig()
	plain := plainConfig(t)
	cfg.Deployment, cfg.Groups = plain.Deployment, []string{group, "no group"}
	_, err = NewTrimmer(cfg)
	require.ErrorContains(t, err, "no group")
	cfg.Groups = []string{group, "kafka"}
	_, err = NewTrimmer(cfg)
	require.NoError(t, err)
}

func TestJitterIsAFifthUpOrDown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "d"))
		got := jitter(d)
		if got < d-d/5 || got > d+d/5 {
			t.Fatalf("jitter(%v) = %v", d, got)
		}
	})
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "base"))
		c := &Consumer{cfg: Config{Backoff: base,
			MaxBackoff: base + time.Duration(rapid.Int64Range(0, int64(23*time.Hour)).Draw(t, "more"))}}
		if c.backoff(0) != 0 {
			t.Fatal("level 0 is at once")
		}
		want := base
		for level := int64(1); level <= c.topLevel()+2; level++ {
			got := c.backoff(level)
			if got < want-want/5 || got > want+want/5 {
				t.Fatalf("level %d: %v, want about %v", level, got, want)
			}
			want = min(2*want, c.cfg.MaxBackoff)
		}
		if at := c.backoff(c.topLevel()); at < c.cfg.MaxBackoff-c.cfg.MaxBackoff/5 {
			t.Fatalf("the top level waits %v, but MaxBackoff is %v", at, c.cfg.MaxBackoff)
		}
	})
}

func TestBackoffOfFailuresNeverOverflows(t *testing.T) {
	t.Parallel()
	c := &Consumer{}
	last := time.Duration(0)
	for _, failures := range []int64{1, 5, 10, 100, 1 << 40} {
		d := c.backoffOf(failures, 100*time.Millisecond)
		require.Positive(t, d)
		require.Greater(t, d, last/2)
		last = d
	}
}

func TestBatchesAreFilled(t *testing.T) {
	t.Parallel()
	s := &shard{cfg: &Config{BatchGrants: 10}}
	items := func(sizes ...int) []item {
		out := make([]item, len(sizes))
		for i, n := range sizes {
			out[i] = item{open: make([]hongbao.Grant, n)}
		}
		return out
	}
	require.Equal(t, 3, s.batch(items(4, 4, 2, 1)))
	require.Equal(t, 2, s.batch(items(4, 4, 3)))
	require.Equal(t, 1, s.batch(items(128, 1)), "a batch has at least one entry, even a too large one")
	require.Equal(t, 4, s.batch(items(0, 0, 10, 0, 1)))
	require.Equal(t, 1, s.batch(items(1)))
}

func TestMeasureKeepsReadsWithinABatch(t *testing.T) {
	t.Parallel()
	c, err := New(plainConfig(t))
	require.NoError(t, err)
	s := newShard(c, 0)
	require.Equal(t, c.cfg.BatchGrants/stream.MaxEntryGrants, s.room(),
		"before the first measurement, the largest entries are assumed")
	small := []item{{entry: stream.Entry{Kind: stream.EntryClose}}}
	for range 50 {
		s.measure(small)
	}
	require.Equal(t, c.cfg.MaxEntries, s.room())
	s.measure([]item{{entry: stream.Entry{Kind: stream.EntryGrant, Grants: make([]hongbao.Grant, 100)}}})
	require.Equal(t, 20, s.room(), "larger ones count at once")
}

// Large entries may have been written during a pause or an outage, even if all earlier entries were small. So the next
// read takes few entries.
func TestReadsBeginSmallAfterAPause(t *testing.T) {
	t.Parallel()
	for _, code := range []string{SinkPaused, SinkDown, RedisDown, ShardFrozen} {
		c, err := New(plainConfig(t))
		require.NoError(t, err)
		s := newShard(c, 0)
		for range 50 {
			s.measure([]item{{entry: stream.Entry{Kind: stream.EntryClose}}})
		}
		s.setHealth(Working, nil)
		require.Equal(t, c.cfg.MaxEntries, s.room())
		s.setHealth(code, errPaused)
		s.setHealth(Working, nil)
		require.Equal(t, c.cfg.BatchGrants/stream.MaxEntryGrants, s.room(), code)
	}
}
