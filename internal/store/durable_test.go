package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// withoutReuse makes a client use a new connection for each call. Since Redis 7.2, WAIT on a connection without writes
// waits for nothing.
func withoutReuse(o *redis.Options) { o.ConnMaxIdleTime = time.Nanosecond }

// follows waits until a server has an online replica.
func follows(t *testing.T, rdb *redis.Client) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		servers, err := store.Inspect(t.Context(), rdb)
		return err == nil && servers[0].Replicas == 1
	}, "the replica follows")
}

// durable waits until the receipts in the answers of grabs are durable.
func (b *bundle) durable(t *testing.T, class hongbao.Durability, answers []hongbao.Answer, users ...string) error {
	t.Helper()
	c := &store.DurableCall{Class: class, Timeout: 200 * time.Millisecond, Users: users}
	for i := range answers {
		c.Receipts = append(c.Receipts, answers[i].Receipts)
	}
	return b.k.Place("rain").Durable(t.Context(), c)
}

// The only replica hangs. A grant is not durable, whichever connection made the grab.
func TestDurableOnAnotherConnection(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		server := testkit.NewRedis(t, testkit.RedisOptions{Binary: program})
		b := setupOn(t, server.Client(t, withoutReuse))
		replica := testkit.NewRedis(t, testkit.RedisOptions{Binary: program, ReplicaOf: server})
		follows(t, b.rdb)
		b.load(t, spec("rain", 10))
		first := b.grab(t, "rain", "u1/r1", "u2/r2")
		testkit.EventuallyOK(t, 20*time.Second, func() error {
			return b.durable(t, hongbao.DurabilityReplica, first, "u1", "u2")
		}, "the replica has the grants")

		require.NoError(t, replica.Stop())
		second := b.grab(t, "rain", "u3/r3")
		require.ErrorIs(t, b.durable(t, hongbao.DurabilityReplica, second, "u3"), store.ErrNotDurable)
		require.ErrorIs(t, b.durable(t, hongbao.DurabilityReplica, first, "u1", "u2"), store.ErrNotDurable,
			"an earlier grant of another user is not known to be durable either")
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "2").Err())
		err := b.durable(t, hongbao.DurabilityReplica, second, "u3")
		require.ErrorIs(t, err, store.ErrNotDurable, "the primary refuses writes")
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		require.NoError(t, replica.Cont())
		testkit.EventuallyOK(t, 20*time.Second, func() error {
			return b.durable(t, hongbao.DurabilityReplica, second, "u3")
		}, "the replica continues, and the primary is out of memory")
	})
}

// Redis does not sync its append-only file. A grant is not on disk, whichever connection made the grab. A server without
// WAITAOF must sync before each reply.
func TestDurableOnDisk(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		server := testkit.NewRedis(t, testkit.RedisOptions{Binary: program, Args: map[string]string{"appendfsync": "always"}})
		b := setupOn(t, server.Client(t, withoutReuse))
		b.load(t, spec("rain", 10))
		first := b.grab(t, "rain", "u1/r1")
		before, _ := b.commandStat(t, "config|get")
		require.NoError(t, b.durable(t, hongbao.DurabilityFsync, first, "u1"))
		reads, _ := b.commandStat(t, "config|get")
		require.LessOrEqual(t, reads-before, int64(1), "readings of the settings")

		require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendfsync", "no").Err())
		second := b.grab(t, "rain", "u2/r2")
		err := b.durable(t, hongbao.DurabilityFsync, second, "u2")
		require.Error(t, err)
		if servers, _ := store.Inspect(t.Context(), b.rdb); servers[0].Version < "7.2" {
			require.ErrorContains(t, err, "set appendfsync always")
		} else {
			require.ErrorIs(t, err, store.ErrNotDurable)
		}
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendfsync", "always").Err())
		testkit.EventuallyOK(t, 20*time.Second, func() error {
			return b.durable(t, hongbao.DurabilityFsync, second, "u2")
		}, "Redis syncs each write")
	})
}

// The only replica hangs. The first answer of a process waits for it, whichever connection wrote the registration.
func TestFirstAnswerWaitsForReplicas(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, program string) {
		server := testkit.NewRedis(t, testkit.RedisOptions{Binary: program})
		b := setupOn(t, server.Client(t, withoutReuse))
		replica := testkit.NewRedis(t, testkit.RedisOptions{Binary: program, ReplicaOf: server})
		follows(t, b.rdb)
		require.NoError(t, b.k.RaiseReplicas(t.Context(), 1))
		b.load(t, spec("rain", 10))
		require.NoError(t, replica.Stop())
		start := time.Now()
		b.grab(t, "rain", "u1/r1")
		require.Greater(t, time.Since(start), store.CopyTime-10*time.Millisecond)
		quick := false
		for i := range 8 { // the machine may be busy
			start = time.Now()
			b.grab(t, "rain", fmt.Sprintf("u2-%d/r2", i))
			quick = quick || time.Since(start) < store.CopyTime
		}
		require.True(t, quick, "only the first answer waits")
		store.AgeRegistration(b.k, stream.WitnessAge)
		start = time.Now()
		b.grab(t, "rain", "u3/r3")
		require.Greater(t, time.Since(start), store.CopyTime-10*time.Millisecond, "so does the first one after a pause")
		require.NoError(t, replica.Cont())
	})
}

// lateLeave deletes the registrations of all processes once, before a pipeline reads one.
type lateLeave struct {
	rdb       *redis.Client
	witnesses string
	left      bool
}

func (*lateLeave) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lateLeave) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *lateLeave) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !h.left && cmds[len(cmds)-1].Name() == "wait" {
			h.left = true
			if err := h.rdb.Del(ctx, h.witnesses).Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// Redis loses a process's first registration before the replicas have it. The process returns no answer until it has
// written the registration again.
func TestFirstAnswerNeedsItsRegistration(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	b := setupOn(t, server.Client(t))
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: server})
	follows(t, b.rdb)
	require.NoError(t, b.k.RaiseReplicas(t.Context(), 1))
	b.load(t, spec("rain", 10))
	hook := &lateLeave{rdb: server.Client(t), witnesses: b.k.Keys.Witnesses()}
	b.rdb.AddHook(hook)
	_, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1/r1"), nil)
	require.True(t, hook.left)
	require.ErrorContains(t, err, "the registration of this process is not on")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	_, err = b.k.Place("rain").Grab(t.Context(), call("rain", "u1/r1"), nil)
	require.NoError(t, err)
	list, err := b.k.Witnesses(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
}
