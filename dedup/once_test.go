package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (b *bundle) key(t *testing.T, id string) string {
	t.Helper()
	for i := range b.store.Len() {
		key := b.store.Shard(i).Keys.Once("sms", id)
		if n, err := b.rdb.Exists(t.Context(), key).Result(); err == nil && n == 1 {
			return key
		}
	}
	t.Fatalf("nothing is known of %s", id)
	return ""
}

// leaseOver waits until the lease of a claim has ended, by the Redis clock.
func leaseOver(t *testing.T, o *dedup.Once, id string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		s, err := o.Claim(t.Context(), id, "looker")
		require.NoError(t, err)
		return s == dedup.InDoubt
	}, "the lease ends")
}

func TestOnceLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	o := b.once(t, time.Minute, time.Hour)
	state := func(want dedup.State, got dedup.State, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	claim := func(token string, want dedup.State) {
		t.Helper()
		s, err := o.Claim(ctx, "m1", token)
		state(want, s, err)
	}
	retake := func(token string, want dedup.State) {
		t.Helper()
		s, err := o.Retake(ctx, "m1", token)
		state(want, s, err)
	}
	claim("a", dedup.Mine)
	claim("a", dedup.Mine) // a repeat
	claim("b", dedup.InProgress)
	retake("b", dedup.InProgress)
	require.ErrorIs(t, o.Complete(ctx, "m1", "b"), dedup.ErrFenced)
	require.ErrorIs(t, o.Release(ctx, "m1", "b"), dedup.ErrFenced)
	require.NoError(t, o.Release(ctx, "m1", "a"))
	require.ErrorIs(t, o.Release(ctx, "m1", "a"), dedup.ErrFenced)
	require.ErrorIs(t, o.Complete(ctx, "m1", "a"), dedup.ErrFenced)
	claim("b", dedup.Mine)
	require.NoError(t, o.Complete(ctx, "m1", "b"))
	require.NoError(t, o.Complete(ctx, "m1", "b")) // a repeat
	require.ErrorIs(t, o.Complete(ctx, "m1", "a"), dedup.ErrFenced)
	require.ErrorIs(t, o.Release(ctx, "m1", "b"), dedup.ErrFenced)
	for _, token := range []string{"a", "b"} {
		claim(token, dedup.Done)
		retake(token, dedup.Done)
	}
	ttl, err := b.rdb.PTTL(ctx, b.key(t, "m1")).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Hour, ttl, float64(time.Minute), "kept for the retention")
}

// The lease of a claim ends without a result. The message is then in doubt, not free. Eight callers retake it, and
// one of them gets the claim.
func TestOnceInDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	short, o := b.once(t, time.Millisecond, time.Hour), b.once(t, time.Minute, time.Hour)
	s, err := short.Claim(ctx, "m1", "a")
	require.NoError(t, err)
	require.Equal(t, dedup.Mine, s)
	leaseOver(t, o, "m1")
	s, err = o.Claim(ctx, "m1", "a")
	require.NoError(t, err)
	require.Equal(t, dedup.InDoubt, s, "in doubt for the first owner too")
	var mine atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if s, err := o.Retake(ctx, "m1", fmt.Sprintf("r%d", i)); err == nil && s == dedup.Mine {
				mine.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, mine.Load())
	require.ErrorIs(t, o.Complete(ctx, "m1", "a"), dedup.ErrFenced, "the claim was taken over")

	s, err = short.Claim(ctx, "m2", "a")
	require.NoError(t, err)
	require.Equal(t, dedup.Mine, s)
	leaseOver(t, o, "m2")
	require.NoError(t, o.Complete(ctx, "m2", "a"), "after the lease, but nobody has retaken the claim")
}

func TestOnceRetentionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.once(t, 3*time.Second, 3*time.Second) // a push must begin within its lease
	for range 2 {
		s, err := o.Push(t.Context(), "m1", "a", func(context.Context) error { return nil })
		require.NoError(t, err)
		require.Equal(t, dedup.Done, s)
		testkit.Eventually(t, 30*time.Second, func() bool {
			var left int64
			for i := range b.store.Len() {
				left += b.rdb.Exists(t.Context(), b.store.Shard(i).Keys.Once("sms", "m1")).Val()
			}
			return left == 0
		}, "the message is forgotten after the retention")
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	o := b.once(t, time.Minute, time.Hour)
	calls := 0
	push := func(id, token string, fail error) (dedup.State, error) {
		return o.Push(ctx, id, token, func(context.Context) error { calls++; return fail })
	}
	s, err := push("m1", "a", hongbao.Errorf(hongbao.ClassTransient, "not sent"))
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.Equal(t, dedup.Free, s, "a Transient error means that nothing was sent")
	s, err = push("m1", "b", nil)
	require.NoError(t, err)
	require.Equal(t, dedup.Done, s)
	s, err = push("m1", "c", nil)
	require.NoError(t, err)
	require.Equal(t, dedup.Done, s)
	require.Equal(t, 2, calls)

	s, err = push("m2", "a", errors.New("timeout"))
	require.ErrorContains(t, err, "timeout")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	require.Equal(t, dedup.InDoubt, s)
	s, err = push("m2", "b", nil)
	require.NoError(t, err)
	require.Equal(t, dedup.InProgress, s, "the message is not pushed again automatically")
	require.Equal(t, 3, calls)

	_, err = push("m 3", "a", nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.Equal(t, 3, calls)

	// The caller's context is canceled during the push. The result is still recorded.
	gone, cancel := context.WithCancel(ctx)
	s, err = o.Push(gone, "m4", "a", func(context.Context) error { cancel(); return nil })
	require.NoError(t, err)
	require.Equal(t, dedup.Done, s)
}

// late delays the answer to the first script until after has returned.
type late struct {
	once  sync.Once
	after func()
}

func (l *late) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			l.once.Do(l.after)
		}
		return err
	}
}

// The answer to the claim arrives after the lease. Another caller has asked the receiver by then, and pushes. The first
// one must not push, too.
func TestPushAfterItsLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const lease = 200 * time.Millisecond
	other := b.once(t, lease, time.Hour)
	var pushes atomic.Int64
	opt := *b.rdb.(*redis.Client).Options()
	slow := redis.NewClient(&opt)
	defer slow.Close()
	_, err := other.Claim(t.Context(), "warm", "up") // so that the script is loaded, and the claim is one call
	require.NoError(t, err)
	slow.AddHook(&late{after: func() {
		leaseOver(t, other, "m1")
		state, err := other.Retake(t.Context(), "m1", "b")
		require.NoError(t, err)
		require.Equal(t, dedup.Mine, state)
		pushes.Add(1)
		require.NoError(t, other.Complete(t.Context(), "m1", "b"))
	}})
	o, err := dedup.NewOnce(dedup.OnceConfig{Deployment: deployment.Of(b.store.Over(slow), zap.NewNop()), Name: "sms",
		Lease: lease, Keep: time.Hour})
	require.NoError(t, err)
	state, err := o.Push(t.Context(), "m1", "a", func(context.Context) error { pushes.Add(1); return nil })
	require.EqualValues(t, 1, pushes.Load(), "pushed although the lease was over")
	require.NoError(t, err)
	require.Equal(t, dedup.InDoubt, state)
}

// The context of a push ends with its lease.
func TestPushEndsWithItsLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const lease = 3 * time.Second
	o := b.once(t, lease, time.Hour)
	state, err := o.Push(t.Context(), "m1", "a", func(ctx context.Context) error {
		until, bounded := ctx.Deadline()
		require.True(t, bounded)
		require.LessOrEqual(t, time.Until(until), lease)
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, dedup.InDoubt, state)
}

// 64 callers push the same 40 messages concurrently. Each message is pushed once.
func TestPushByMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.once(t, time.Minute, time.Hour)
	const messages = 40
	var pushed [messages]atomic.Int64
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := range messages {
				s, err := o.Push(t.Context(), fmt.Sprintf("m%d", i), fmt.Sprintf("w%d", w), func(context.Context) error {
					pushed[i].Add(1)
					return nil
				})
				if err != nil || s != dedup.Done && s != dedup.InProgress {
					t.Errorf("message %d: %s, %v", i, s, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range pushed {
		require.EqualValues(t, 1, pushed[i].Load(), i)
	}
}

// The replies to Claim and Complete are lost, and the Redis client retries with the same token. Each message is still
// pushed once.
func TestPushWithLostAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := testkit.Redis(t)
	proxy := testkit.NewProxy(t, server.Addr)
	rdb := server.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr, 3 })
	o := (&bundle{rdb: rdb, store: b.store}).once(t, time.Minute, time.Hour)
	calls := 0
	for i := range 20 {
		proxy.SwallowAnswers(1, nil)
		s, err := o.Push(t.Context(), fmt.Sprintf("m%d", i), "a", func(context.Context) error {
			proxy.SwallowAnswers(1, nil)
			calls++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, dedup.Done, s)
	}
	require.Equal(t, 20, calls)
	require.Equal(t, 40, proxy.Fired().Swallowed)
}

// A message's key has foreign content. Every call fails as Broken and leaves the key unchanged.
func TestOnceForeignKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.once(t, time.Minute, time.Hour)
	_, err := o.Claim(t.Context(), "m1", "a")
	require.NoError(t, err)
	key := b.key(t, "m1")
	require.NoError(t, b.rdb.Set(t.Context(), key, "something else entirely", 0).Err())
	for name, call := range map[string]func() error{
		"claim":    func() error { _, err := o.Claim(t.Context(), "m1", "b"); return err },
		"retake":   func() error { _, err := o.Retake(t.Context(), "m1", "b"); return err },
		"complete": func() error { return o.Complete(t.Context(), "m1", "a") },
		"release":  func() error { return o.Release(t.Context(), "m1", "a") },
	} {
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(call()), name)
	}
	require.Equal(t, "something else entirely", b.rdb.Get(t.Context(), key).Val())
}

func TestNewOnceNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := dedup.NewOnce(dedup.OnceConfig{Name: "*", Lease: time.Hour, Keep: time.Minute})
	for _, part := range []string{"Deployment is required", "name", "retention"} {
		require.ErrorContains(t, err, part)
	}
}
