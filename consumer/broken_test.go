package consumer

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// awaitHealth waits until the shard's Health has the code, and returns that Health.
func (w *worker) awaitHealth(shard int, code string) Health {
	w.t.Helper()
	var h Health
	testkit.Eventually(w.t, soon, func() bool {
		h = w.Health()[shard]
		return h.Code == code
	}, "shard %d: %s", shard, code)
	return h
}

func TestBrokenShardIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	ids := b.add(t, 0, 1, 1, 1)
	b.add(t, 1, 5)
	var fixed atomic.Bool
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if grants[0].Shard == 1 || fixed.Load() {
			return nil
		}
		return failing(func(seq int64) error {
			if seq == 2 {
				return hongbao.Errorf(hongbao.ClassBroken, "the topic is not there")
			}
			return nil
		})(t.Context(), batch)
	})
	w := start(t, b.config(t, "w", s))
	h := w.awaitHealth(0, ShardBroken)
	require.ErrorContains(t, h.Err, "the topic is not there")
	require.False(t, h.Since.IsZero())
	testkit.Eventually(t, soon, func() bool { return w.logged("shard is broken") >= 2 }, "tried again, and reported again")
	b.add(t, 1, 5)
	b.idle(t, 1)
	w.awaitHealth(1, Working)
	holder, count := b.holder(t, ids[1])
	require.NotEmpty(t, holder, "the entry is not done")
	require.Zero(t, count, "no attempt was taken")
	fixed.Store(true)
	b.add(t, 0, 2)
	b.idle(t, 0)
	require.NoError(t, w.awaitHealth(0, Working).Err)
	require.NoError(t, w.stop())
	require.Empty(t, b.dead(t))
	require.Equal(t, 5+10, s.size())
}

// A Redis user loses a permission and gets it back, as during a reload of the ACL file. The shard is broken meanwhile
// and then recovers.
func TestShardSurvivesThatRedisDeniesACommand(t *testing.T) {
	t.Parallel()
	b, _ := setupOwn(t, 1)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.add(t, 0, 3)
	b.idle(t, 0)
	acl := func(rule string) {
		t.Helper()
		require.NoError(t, b.rdb.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err())
	}
	acl("-xreadgroup")
	require.Regexp(t, "NOPERM|can't run this command", w.awaitHealth(0, ShardBroken).Err.Error()) // outside or in a script
	b.add(t, 0, 3)
	acl("+xreadgroup")
	b.idle(t, 0)
	w.awaitHealth(0, Working)
	require.NoError(t, w.stop())
	s.onceEach(t, 6)
}

func TestHealthReportsASinkThatIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	up := make(chan struct{})
	w := start(t, b.config(t, "w", newSink(down(up))))
	require.ErrorContains(t, w.awaitHealth(0, SinkDown).Err, "connection refused")
	close(up)
	b.idle(t, 0)
	w.awaitHealth(0, Working)
	require.NoError(t, w.stop())
}

func TestHealthReportsARedisThatIsDown(t *testing.T) {
	t.Parallel()
	b, r := setupOwn(t, 1)
	w := start(t, b.config(t, "w", newSink(nil)))
	w.awaitHealth(0, Working)
	require.NoError(t, r.Kill())
	w.awaitHealth(0, RedisDown)
	require.NoError(t, r.Restart())
	w.awaitHealth(0, Working)
	require.NoError(t, w.stop())
}

// The worker is connected to a Redis of another deployment, or has a wrong number of shards or a wrong key prefix. It
// says so, and neither reads nor creates a group.
func TestForeignRedisIsBroken(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	space := b.store.Space()
	for what, cfg := range map[string]store.Config{
		"its shards is":     {Deployment: "test", Space: hongbao.Space{Prefix: space.Prefix, Shards: 2}},
		"its deployment is": {Deployment: "another", Space: space},
		"no deployment":     {Deployment: "test", Space: hongbao.Space{Prefix: testkit.Prefix(t), Shards: 1}},
	} {
		cfg.Redis = b.client(t, b.addr)
		st, err := store.New(cfg)
		require.NoError(t, err)
		s := newSink(nil)
		c := b.config(t, "w", s)
		c.Deployment = deployment.Of(st, zap.NewNop())
		w := start(t, c)
		require.ErrorContains(t, w.awaitHealth(0, ShardBroken).Err, what)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(w.stop()), what)
		require.Zero(t, s.size(), what)
		if key := st.Shard(0).Keys.Events(); key != b.keys().Keys.Events() {
			require.Zero(t, b.rdb.Exists(t.Context(), key).Val(), what)
		}
	}
	made, err := b.rdb.XInfoGroups(t.Context(), b.keys().Keys.Events()).Result()
	require.NoError(t, err)
	require.Empty(t, made)
}
