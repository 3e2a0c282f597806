package consumer

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
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
