package recovery_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

type asked struct {
	topic

	since chan time.Time
}

func (a *asked) HighestSeq(_ context.Context, _ int, since time.Time) (int64, error) {
	select {
	case a.since <- since:
	default:
	}
	return a.highest, nil
}

func (a *asked) Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error) {
	if _, err := a.HighestSeq(ctx, f.Shard, f.Since); err != nil {
		return stream.Fenced{}, err
	}
	return a.topic.Fence(ctx, f)
}

// The recoverer reads the topic from the time of the stream's last entry, even if that entry was trimmed.
func TestTopicIsAskedFromTheLastEntryOn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	began := time.Now()
	w.grab(t, w.rdb, 10)
	w.settle(t)
	require.NoError(t, w.rdb.XTrimMaxLen(t.Context(), w.store.Shard(0).Keys.Events(), 0).Err())
	topic := &asked{topic{highest: 10}, make(chan time.Time, 1)}
	w.rec = w.recoverer(func(c *recovery.Config) { c.Topic = topic })
	w.restart(t, "")
	w.opens(t)
	require.WithinRange(t, <-topic.since, began.Add(-2*time.Minute), time.Now())

	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	topic.since = make(chan time.Time, 1)
	w.staysFrozen(t)
	require.Zero(t, <-topic.since, "the stream is lost: the time of the first missing event is unknown")
}

type slow struct {
	topic

	rdb  *redis.Client
	lock string
}

func (s *slow) HighestSeq(ctx context.Context, _ int, _ time.Time) (int64, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for was, renewed := time.Duration(0), 0; renewed < 5; <-tick.C {
		ttl, err := s.rdb.PTTL(ctx, s.lock).Result()
		if err != nil {
			return 0, err
		}
		if ttl > was {
			renewed++
		}
		was = ttl
	}
	return 0, nil
}

func (s *slow) Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error) {
	_, err := s.HighestSeq(ctx, f.Shard, f.Since)
	return stream.Fenced{}, err
}

// Reading the topic takes longer than the lease. The recoverer renews the lease meanwhile, so the shard opens.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	topic := &slow{rdb: w.server.Client(t), lock: w.store.Shard(0).Keys.Lock("recover")}
	w.rec = w.recoverer(func(c *recovery.Config) { c.Topic, c.Lease = topic, time.Second })
	w.restart(t, "")
	testkit.Eventually(t, 30*time.Second, func() bool {
		err := w.rec.OpenFrozen(t.Context(), 0)
		if errors.Is(err, store.ErrLockLost) { // the machine was busy for a second
			return false
		}
		require.NoError(t, err)
		_, err = w.shard().OpenHead(t.Context())
		return err == nil
	}, "the shard is open")
}

// A recoverer loses its lease to another worker. Its call to the topic is canceled.
func TestLostLeaseEndsTheLook(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	looking := make(chan struct{})
	w.rec = w.recoverer(func(c *recovery.Config) {
		c.Topic, c.Lease = topicFunc(func(ctx context.Context) (int64, error) {
			close(looking)
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}), time.Second
	})
	w.restart(t, "")
	_, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	ended := make(chan error, 1)
	testkit.Eventually(t, 20*time.Second, func() bool {
		z, err := w.shard().Freeze(t.Context())
		return err == nil && z.Since > 300*time.Millisecond
	}, "the shard is frozen for long enough")
	go func() { ended <- w.rec.OpenFrozen(t.Context(), 0) }()
	<-looking
	require.NoError(t, w.rdb.Set(t.Context(), w.store.Shard(0).Keys.Lock("recover"), "another", time.Minute).Err())
	require.ErrorIs(t, <-ended, store.ErrLockLost)
	head, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	require.True(t, head.Frozen)
}

type topicFunc func(ctx context.Context) (int64, error)

func (f topicFunc) HighestSeq(ctx context.Context, _ int, _ time.Time) (int64, error) { return f(ctx) }

func (f topicFunc) FenceSince(last time.Time) time.Time { return last }

func (f topicFunc) Fence(ctx context.Context, _ stream.TopicFence) (stream.Fenced, error) {
	_, err := f(ctx)
	return stream.Fenced{}, err
}

// Redis has lost nothing. The recoverer does not look up refunded campaigns one by one.
func TestRefundedCampaignsAreNotLookedUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fund(t, "over", 0)
	closed, err := w.shard().Place("over").Close(t.Context(), true, 0)
	require.NoError(t, err)
	w.refund(t, closed)
	_, err = w.shard().Place("over").Refunded(t.Context())
	require.NoError(t, err)
	w.restart(t, "")
	w.rdb.AddHook(down(w.store.Shard(0).Keys.Campaign("over")))
	w.opens(t)
}
