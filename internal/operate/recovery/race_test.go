package recovery_test

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// lastAsked is a ledger that calls before once, before Controls: an opening asks for them last.
type lastAsked struct {
	recovery.Ledger

	before func()
	once   sync.Once
}

func (l *lastAsked) Controls(ctx context.Context) ([]stream.Control, error) {
	l.once.Do(l.before)
	return l.Ledger.Controls(ctx)
}

// beforeAttempt calls before once, before a recoverer reads the attempt that is under way.
type beforeAttempt struct {
	untouched

	before func()
	once   sync.Once
}

func (h *beforeAttempt) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) == 3 && args[0] == "hget" && args[2] == "mend" {
			h.once.Do(h.before)
		}
		return next(ctx, cmd)
	}
}

// untouched is a hook that changes nothing.
type untouched struct{}

func (untouched) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (untouched) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (untouched) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The lease of a worker that opens a shard is over, and another worker has found the shard frozen. It fences the ledger
// after the first one has opened the shard. The shard freezes again, because the ledger would refuse the events of the
// first one's epoch forever. Found by the simulation.
func TestFencedAfterAnOpening(t *testing.T) {
	t.Parallel()
	t.Run("open", func(t *testing.T) { fencedAfterAnOpening(t, false) })
	// Redis has lost an event since, so the shard is frozen. What its users have seen still counts, and the next attempt
	// restores it.
	t.Run("lost since", func(t *testing.T) { fencedAfterAnOpening(t, true) })
}

func fencedAfterAnOpening(t *testing.T, loses bool) {
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 5)
	w.settle(t)
	w.restart(t, "")
	reached, opened, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	client := w.server.Client(t)
	client.AddHook(&beforeAttempt{before: func() { close(reached); <-opened }})
	other, err := store.New(store.Config{Redis: client, Space: hongbao.Space{Prefix: "hb", Shards: 1}, Deployment: "test"})
	require.NoError(t, err)
	second := w.recoverer(func(c *recovery.Config) { c.Store = other })
	first := &lastAsked{before: func() {
		require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err())
		go func() { over <- second.OpenFrozen(t.Context(), 0) }()
		<-reached
	}}
	w.rec = w.recoverer(func(c *recovery.Config) { first.Ledger, c.Ledger = c.Ledger, first })
	w.opens(t)
	if loses {
		old := w.older(t)
		p.wins(t, 1)
		w.settle(t)
		w.restart(t, old)
	}
	close(opened)
	require.ErrorIs(t, <-over, store.ErrAttemptOver)
	w.rec = second
	require.NoError(t, second.FreezeFenced(t.Context(), 0))
	w.opens(t)
	before, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.FreezeFenced(t.Context(), 0))
	after, err := w.shard().OpenHead(t.Context())
	require.NoError(t, err, "the ledger takes this epoch, so the shard stays open")
	require.Equal(t, before, after)
	p.wins(t, 1)
	w.settle(t)
}
