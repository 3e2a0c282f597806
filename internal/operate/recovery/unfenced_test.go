package recovery_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
)

// returning is a topic whose broker is away during the first fence, and is back a moment later.
type returning struct {
	*topic
	calls int
}

func (r *returning) Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error) {
	if r.calls++; r.calls == 1 {
		return stream.Fenced{}, hongbao.Outagef(hongbao.ClassTransient, "the broker is away")
	}
	return r.topic.Fence(ctx, f)
}

// losesDoneBits restarts Redis with all its events, of which the topic has ten, and without the done bits of these.
func (w *world) losesDoneBits(t *testing.T) {
	t.Helper()
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	w.topic.grants = entries[0].Grants
	w.restart(t, old)
}

// Redis has lost no event, but the done bits of events that the topic has. The broker is away while the topic is
// fenced, and answers right after. The shard does not open before its done bits are restored: the publisher would send
// the events again. Found by the simulation.
func TestTopicIsBackRightAfterTheFence(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.losesDoneBits(t)
	away := &returning{topic: &w.topic}
	w.restores(t, w.patient(func(c *recovery.Config) { c.Topic, c.Margin = away, time.Second }))
	done, err := w.rdb.BitCount(t.Context(), w.shard().Keys.Done("kafka", 0), nil).Result()
	require.NoError(t, err)
	require.EqualValues(t, 10, done)
	require.Greater(t, away.calls, 1)
}

// refusing is a topic whose broker lets the recoverer read, and refuses fence records.
type refusing struct{ *topic }

func (r refusing) Fence(context.Context, stream.TopicFence) (stream.Fenced, error) {
	return stream.Fenced{Grants: r.grants}, hongbao.Errorf(hongbao.ClassBroken, "no right to write")
}

func (r refusing) HighestSeq(context.Context, int, time.Time) (int64, error) { return 10, nil }

// Redis has lost no event, but the done bits of events that the topic has. The broker refuses the fence, and lets the
// recoverer read. The shard opens with its done bits, and the log names the topic.
func TestDoneBitsOfATopicThatCannotBeFenced(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.losesDoneBits(t)
	w.restores(t, w.patient(func(c *recovery.Config) { c.Topic, c.Margin = refusing{&w.topic}, time.Second }))
	done, err := w.rdb.BitCount(t.Context(), w.shard().Keys.Done("kafka", 0), nil).Result()
	require.NoError(t, err)
	require.EqualValues(t, 10, done)
	warned := w.logs.FilterMessageSnippet("the topic can't be trusted").All()
	require.Len(t, warned, 1)
	require.Contains(t, warned[0].ContextMap()["topic"], "no right to write")
}
