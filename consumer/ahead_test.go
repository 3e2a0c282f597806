package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// pipelines is a hook that calls do for each pipeline whose first command reads the stream.
type pipelines struct {
	do func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (pipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "xreadgroup" {
			return next(ctx, cmds)
		}
		return h.do(ctx, cmds, next)
	}
}

// While the stream always has unread entries, a batch needs only one round trip to Redis before the handler runs. The
// read also returns the done bits, the head and the pause.
func TestReadBringsProgress(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(2, 200)...)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.BatchGrants = 20
	var asked pipelineHook
	var reads atomic.Int64
	counted, reader := b.client(t, b.addr), b.client(t, b.addr)
	counted.AddHook(&asked)
	reader.AddHook(pipelines{func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		reads.Add(1)
		return next(ctx, cmds)
	}})
	cfg.Deployment = b.over(t, counted, reader)
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 400)
	require.GreaterOrEqual(t, reads.Load(), int64(15), "of about 20 batches")
	require.LessOrEqual(t, len(asked.seen), 3, "few batches needed a second round trip")
}

// A read returns a progress that is older than its entries, as may happen while a cluster slot moves. The worker must
// not treat these entries as forged.
func TestProgressThatIsOlderThanItsEntries(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	var once sync.Once
	reader := b.client(t, b.addr)
	reader.AddHook(pipelines{func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		_ = next(ctx, cmds[1:])
		once.Do(func() { _, _ = b.push(ctx, 0, 2) })
		return next(ctx, cmds[:1])
	}})
	cfg.Deployment = b.over(t, b.client(t, b.addr), reader)
	w := start(t, cfg)
	testkit.Eventually(t, 30*time.Second, func() bool { return s.size() == 4 }, "both entries were handled")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	require.Empty(t, b.dead(t))
	require.Zero(t, w.Stats().Forged)
}
