package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	status := func() store.GroupStatus {
		s, err := k.Group("balance").Status(t.Context())
		require.NoError(t, err)
		return s
	}
	ids := b.events(t, "rain", 1, 2, 3, 1)
	before := status()
	require.EqualValues(t, 7, before.Seq)
	require.EqualValues(t, 7, before.Waiting, "no group yet: all of it waits")
	testkit.Eventually(t, time.Minute, func() bool { return status().Oldest > 0 && status().Unread > 0 },
		"no group yet: what waits grows old")

	b.group(t, "balance")
	s := status()
	require.EqualValues(t, 7, s.Waiting)
	require.Empty(t, s.Workers)
	require.Less(t, s.Oldest, time.Minute)

	// The entry after the parked one is finished, so it does not count as waiting.
	b.read(t, "balance", "w1", 3)
	n, err := k.Group("balance").Park(t.Context(), "w1", []store.Parking{{ID: ids[0], Level: 0, Attempts: 1}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = k.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 2, Last: 3}), ids[1:2])
	require.NoError(t, err)
	s = status()
	require.EqualValues(t, 5, s.Waiting)
	require.EqualValues(t, 1, s.Parked)
	require.Len(t, s.Workers, 1)
	require.Equal(t, "w1", s.Workers[0].Name)
	require.EqualValues(t, 1, s.Workers[0].Holds)
}

type trips struct{ n atomic.Int64 }

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" { // sent for each new connection
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// Status takes at most three round trips in each state of a group. That matters because a deployment has many shards,
// and all are polled every second.
func TestStatusTakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rdb, count := testkit.Redis(t).Client(t), &trips{}
	rdb.AddHook(count)
	require.NoError(t, rdb.Ping(t.Context()).Err()) // connects now, so that it does not count
	k := b.store.Over(rdb).Shard(0)
	takes := func(most, waiting int64) {
		t.Helper()
		count.n.Store(0)
		s, err := k.Group("balance").Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, waiting, s.Waiting)
		require.LessOrEqual(t, count.n.Load(), most)
	}
	takes(1, 0)
	ids := b.events(t, "rain", 1, 2, 3, 1)
	takes(3, 7)
	b.group(t, "balance")
	takes(3, 7)
	b.read(t, "balance", "w1", 2)
	takes(3, 7)
	_, err := b.k.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 3}), ids[:2])
	require.NoError(t, err)
	takes(3, 4)
	b.read(t, "balance", "w1", 2)
	_, err = b.k.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 4, Last: 7}), ids[2:])
	require.NoError(t, err)
	takes(2, 0)

	// Twenty unreadable entries precede the next event.
	for range 20 {
		poison := &redis.XAddArgs{Stream: b.k.Keys.Events(), Values: []string{"poison", "1"}}
		require.NoError(t, b.rdb.XAdd(t.Context(), poison).Err())
	}
	b.events(t, "snow", 1)
	s, err := k.Group("balance").Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Waiting)
	finished, exists, err := k.Group("balance").Finished(t.Context(), s.Seq)
	require.NoError(t, err)
	require.True(t, exists)
	require.EqualValues(t, 7, finished)
}

// A worker without entries calls Reclaim. The status then includes the worker.
func TestStatusSeesAnIdleWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.k
	b.group(t, "kafka")
	got, gone := b.take(t, "w1", 1)
	require.Empty(t, got)
	require.Empty(t, gone)
	s, err := k.Group("kafka").Status(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Workers, 1)
	require.Equal(t, "w1", s.Workers[0].Name)
	require.Zero(t, s.Workers[0].Holds)
	require.Zero(t, s.Waiting)
}
