package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

type lockBundle struct {
	*bundle
	key string
}

func setupLock(t *testing.T) *lockBundle {
	t.Helper()
	b := setup(t)
	return &lockBundle{b, b.k.Keys.Lock("refund")}
}

func (b *lockBundle) locks(t *testing.T, lease time.Duration) *store.Locks {
	t.Helper()
	l, err := b.store.Locks(store.LockConfig{Lease: lease, Poll: 2 * time.Millisecond})
	require.NoError(t, err)
	return l
}

func (b *lockBundle) held(t *testing.T) bool {
	t.Helper()
	n, err := b.rdb.Exists(t.Context(), b.key).Result()
	require.NoError(t, err)
	return n == 1
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	var inside, ran atomic.Int64
	var group errgroup.Group
	for range 8 {
		l := b.locks(t, 10*time.Second)
		group.Go(func() error {
			for range 5 {
				err := l.Do(t.Context(), "refund", func(context.Context) error {
					if n := inside.Add(1); n != 1 {
						return errors.New("another holder is here too")
					}
					defer inside.Add(-1)
					ran.Add(1)
					return b.rdb.Ping(t.Context()).Err()
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 40, ran.Load())
	require.False(t, b.held(t))
}

// Work runs longer than the lease. The lock is renewed, so nobody else can take it. A lock with a different name is
// free.
func TestRenewedWhileHeld(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	const lease = 5 * time.Second
	first, second := b.locks(t, lease), b.locks(t, lease)
	failed := errors.New("its own error")
	err := first.Do(t.Context(), "refund", func(ctx context.Context) error {
		soon, cancel := context.WithTimeout(t.Context(), 3*lease/2)
		defer cancel()
		require.ErrorIs(t, second.Do(soon, "refund", func(context.Context) error { return errors.New("two owners") }),
			context.DeadlineExceeded)
		require.NoError(t, second.Do(t.Context(), "retire", func(context.Context) error { return nil }))
		require.NoError(t, ctx.Err())
		return failed
	})
	require.Equal(t, failed, err)
	require.False(t, b.held(t), "released after an error too")
}

// ahead is a context that ends later than its Deadline says.
type ahead struct {
	context.Context
	at time.Time
}

func (c ahead) Deadline() (time.Time, bool) { return c.at, true }

// The Redis client gives up at a deadline, just before the context ends. The error still says that the caller waited
// for the lock.
func TestDeadlineBeforeTheContextEnds(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := b.locks(t, time.Second).Do(ahead{ctx, time.Now().Add(-time.Millisecond)}, "refund",
		func(context.Context) error { panic("fn ran although the deadline had passed") })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "wait for lock refund")
}

// Another owner has taken a holder's lock. The holder's context ends with ErrLockLost, and its release does not
// remove the new lock.
func TestLossIsNoticed(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	err := b.locks(t, 150*time.Millisecond).Do(t.Context(), "refund", func(ctx context.Context) error {
		require.NoError(t, b.rdb.Set(t.Context(), b.key, "another", 0).Err())
		waitLost(ctx, t)
		require.ErrorIs(t, context.Cause(ctx), store.ErrLockLost)
		return ctx.Err()
	})
	require.ErrorIs(t, err, store.ErrLockLost)
	require.ErrorIs(t, err, context.Canceled)
	owner, err := b.rdb.Get(t.Context(), b.key).Result()
	require.NoError(t, err)
	require.Equal(t, "another", owner)
}

func waitLost(ctx context.Context, t *testing.T) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	select {
	case <-ctx.Done():
	case <-deadline.C:
		require.Fail(t, "the context did not end although the lock is lost")
	}
}

// Redis does not answer during the work. The holder's context ends with its lease, before another caller can take the
// lock.
func TestLostWithoutRedis(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	const patient = time.Minute
	at := setupOn(t, server.Client(t, func(o *redis.Options) { o.ReadTimeout = patient }))
	b := &lockBundle{at, at.k.Keys.Lock("refund")}
	const lease = 300 * time.Millisecond
	err := b.locks(t, lease).Do(t.Context(), "refund", func(ctx context.Context) error {
		require.NoError(t, server.Stop())
		stopped := time.Now()
		waitLost(ctx, t)
		require.Less(t, time.Since(stopped), patient/2, "earlier than the client's timeout")
		require.ErrorIs(t, context.Cause(ctx), store.ErrLockLost)
		require.NoError(t, server.Cont())
		return nil
	})
	require.NoError(t, err, "what fn says counts")
}

// The holder's machine sleeps for longer than the lease: its wall clock jumps, and its timers have not advanced. The
// holder's context ends before the next renewal. The same applies if the machine sleeps while it takes the lock.
func TestLossDuringSleep(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	const lease = time.Minute
	l := b.locks(t, lease)
	var slept atomic.Int64
	l.SetNow(func() time.Time { return time.Now().Add(time.Duration(slept.Load())) })
	wait := func(ctx context.Context) error {
		waitLost(ctx, t)
		require.ErrorIs(t, context.Cause(ctx), store.ErrLockLost)
		return ctx.Err()
	}
	began := time.Now()
	require.ErrorIs(t, l.Do(t.Context(), "refund", func(ctx context.Context) error {
		slept.Store(int64(lease))
		return wait(ctx)
	}), store.ErrLockLost)
	var asked atomic.Bool
	l.SetNow(func() time.Time {
		if asked.Swap(true) {
			return time.Now().Add(lease)
		}
		return time.Now() // before the call that takes the lock
	})
	require.ErrorIs(t, l.Do(t.Context(), "refund", func(ctx context.Context) error {
		require.ErrorIs(t, context.Cause(ctx), store.ErrLockLost, "before fn begins")
		return ctx.Err()
	}), store.ErrLockLost)
	require.Less(t, time.Since(began), lease/3, "before the next renewal")
}

// A holder died. Its lock is free after the lease.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	b := setupLock(t)
	require.NoError(t, b.rdb.Set(t.Context(), b.key, "dead", 200*time.Millisecond).Err())
	ran := false
	require.NoError(t, b.locks(t, time.Second).Do(t.Context(), "refund", func(context.Context) error {
		ran = true
		return nil
	}))
	require.True(t, ran)
}

func TestLocksRefuses(t *testing.T) {
	t.Parallel()
	_, err := unreached(t).Locks(store.LockConfig{})
	for _, part := range []string{"Lease", "Poll"} {
		require.ErrorContains(t, err, part)
	}
}
