package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func isScript(request []byte) bool {
	return bytes.Contains(bytes.ToLower(request), []byte("evalsha")) && !bytes.Contains(request, []byte(":witnesses"))
}

// Answers of Redis are lost under load, and the producer or its client retries the calls. Every request id gets
// exactly one grant and its receipt.
func TestSwallowedAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprintf("retries%d", retries), func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.server, 1)
			c := spec("rain", 3000)
			c.Limits = []hongbao.Limit{{By: "user", Per: hongbao.PerCampaign, Max: 5}}
			b.load(t, c)
			proxy, rdb := b.through(t, retries)
			p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
			var mu sync.Mutex
			receipts := map[string]hongbao.Receipt{}
			var wg sync.WaitGroup
			for w := range 32 {
				wg.Go(func() {
					for i := range 40 {
						if w == 0 {
							proxy.SwallowAnswers(1, isScript)
						}
						user, request := fmt.Sprintf("u%d-%d", w, i/5), fmt.Sprintf("r%d", i)
						a, err := p.Grab(t.Context(), grab(user, request))
						if err != nil || a.Outcome != hongbao.OutcomeGranted {
							t.Errorf("%s: %s %v", user, a.Outcome, err)
							return
						}
						mu.Lock()
						receipts[user+"/"+request] = a.Receipts[0]
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			proxy.SwallowAnswers(0, nil)
			fired := proxy.Fired().Swallowed
			require.GreaterOrEqual(t, fired, 30)
			t.Logf("answers swallowed: %d", fired)
			grants := 0
			for _, list := range b.grants(t) {
				for _, g := range list {
					grants++
					r := receipts[g.User+"/"+g.RequestID]
					require.Equal(t, []int64{g.Packet, g.Seq, int64(g.Amount)}, []int64{r.Packet, r.Seq, int64(r.Amount)}, g.RequestID)
				}
			}
			require.Equal(t, 32*40, grants)
			require.Len(t, receipts, grants)
		})
	}
}

// Redis is down. Grabs fail as an outage in which nothing happened, and work again after the restart.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}}), 1)
	b.load(t, spec("rain", 10))
	p := b.producer(t, func(c *producer.Config) { c.CallTimeout = hopeless })
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	require.NoError(t, b.server.Kill())
	// The first grab may use the connection that the kill broke, so its result is Unknown. A try that runs into
	// CallTimeout does not see the refused connection, so the test repeats the grab.
	testkit.Eventually(t, 20*time.Second, func() bool {
		_, err = p.Grab(t.Context(), grab("u1", "r1"))
		require.True(t, hongbao.IsOutage(err), "%v", err)
		return errors.Is(err, syscall.ECONNREFUSED)
	}, "the error says why")
	testkit.Eventually(t, 20*time.Second, func() bool {
		_, err = p.Grab(t.Context(), grab("u2", "r2"))
		require.True(t, hongbao.IsOutage(err), "%v", err)
		return hongbao.ClassOf(err) == hongbao.ClassTransient
	}, "nothing happened")
	require.NoError(t, b.server.Restart())
	storetest.KeepOpen(t, b.store)
	testkit.Eventually(t, 30*time.Second, func() bool { // go-redis tries to connect once a second
		a, err := p.Grab(t.Context(), grab("u1", "r1"))
		return err == nil && a.Outcome == hongbao.OutcomeGranted
	}, "grabs work again")
	require.Len(t, b.grants(t), 2)
}

// Redis carries out the first try, its answer is lost, and then Redis is down. The result must stay Unknown, whether
// the producer or its client retries.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, retries := range []int{-1, 2} {
		t.Run(fmt.Sprintf("retries%d", retries), func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.server, 1)
			b.load(t, spec("rain", 10))
			proxy := testkit.NewProxy(t, b.server.Addr)
			var down atomic.Bool
			var refused atomic.Int64
			rdb := b.server.Client(t, func(o *redis.Options) {
				o.MaxRetries = retries
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if down.Load() {
						refused.Add(1)
						return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
					}
					conn, err := proxy.Dial(ctx, network, addr)
					return &downConn{conn, &down}, err
				}
			})
			p := b.producer(t, func(c *producer.Config) { c.Deployment, c.CallTimeout = b.over(rdb), hopeless })
			_, err := p.Grab(t.Context(), grab("u0", "r0"))
			require.NoError(t, err)
			proxy.SwallowAnswers(1, func(request []byte) bool {
				if isScript(request) {
					down.Store(true)
					return true
				}
				return false
			})
			_, err = p.Grab(t.Context(), grab("u1", "r1"))
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
			require.Equal(t, 1, proxy.Fired().Swallowed)
			require.Positive(t, refused.Load())
			require.Len(t, b.grants(t), 2, "the packet was granted")
			down.Store(false)
			a, err := p.Grab(t.Context(), grab("u1", "r1"))
			require.NoError(t, err)
			require.Equal(t, b.grants(t)["u1"][0].Packet, a.Receipts[0].Packet)
			require.Len(t, b.grants(t), 2)
		})
	}
}

// downConn is a connection that fails all writes while its server is down.
type downConn struct {
	net.Conn

	down *atomic.Bool
}

func (c *downConn) Write(b []byte) (int, error) {
	if c.down.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

// before is a hook that calls the function before each command.
type before func()

func (f before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f()
		return next(ctx, cmd)
	}
}

func (f before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The result of the first try is unknown, and its retry fails with a Broken error. The result must be Unknown, because
// Redis may have carried out the first try.
func TestUnknownThenBroken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	proxy := testkit.NewProxy(t, b.server.Addr)
	rdb := b.server.Client(t, func(o *redis.Options) { o.Dialer = proxy.Dial })
	rdb.AddHook(before(func() {
		if proxy.Fired().Swallowed == 1 { // after the first try, break the type of the receipts' key
			b.admin.Set(context.Background(), b.k.Keys.Receipts("rain"), "planted", 0)
		}
	}))
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	proxy.SwallowAnswers(1, isScript)
	_, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.Len(t, b.grants(t)["u1"], 1)
}

// A connection hangs in the middle of a call, and the caller's context ends. The next grab does not wait for that call,
// but goes by another connection.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	proxy.Delay(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	start := time.Now()
	_, err = p.Grab(ctx, grab("u1", "r1"))
	require.Less(t, time.Since(start), enough+3*time.Second, "Grab returns at the end of its context")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "r1")
	proxy.Delay(0)
	start = time.Now()
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.Less(t, time.Since(start), 1500*time.Millisecond)
	require.Len(t, b.grants(t)["u1"], 1)
}

// A caller whose context has ended changes its Grab, while the producer still retries the call. The retry uses the old
// values.
func TestGrabUsedAgain(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 10))
	proxy, rdb := b.through(t, -1)
	var producers []*producer.Producer // in a single producer the second grab would wait for the first call
	for _, user := range []string{"u0", "v0"} {
		p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
		_, err := p.Grab(t.Context(), grab(user, "r0"))
		require.NoError(t, err)
		producers = append(producers, p)
	}
	require.NoError(t, b.server.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	first, second := grab("u1", "r1"), grab("u2", "r2")
	var wg sync.WaitGroup
	for i, g := range []*hongbao.Grab{first, second} {
		wg.Go(func() {
			_, err := producers[i].Grab(ctx, g)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	proxy.SwallowAnswers(2, isScript)
	wg.Wait()
	first.User, second.User = "mallory", "mallory"
	require.NoError(t, b.server.Cont())
	testkit.Eventually(t, 30*time.Second, func() bool { return len(b.grants(t)) == 4 }, "both calls were made")
	for _, p := range producers {
		require.NoError(t, p.Close(t.Context()))
	}
	grants := b.grants(t)
	require.Len(t, grants, 4)
	require.Len(t, grants["u1"], 1)
	require.Len(t, grants["u2"], 1)
}

// A key of a wrong type makes the error Broken, and the call is not retried.
func TestBrokenIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	scripts, rdb := b.counting(t, "evalsha")
	scripts.with = b.k.Keys.Stock("rain")
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	before := scripts.n.Load()
	require.NoError(t, b.admin.Set(t.Context(), b.k.Keys.Stock("rain"), "planted", 0).Err())
	_, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Equal(t, before+1, scripts.n.Load())
	var reply redis.Error
	require.ErrorAs(t, err, &reply)
	require.Len(t, b.entries(t), 1, "only the entry of the first grab")
}

// The answers to the first looks at a campaign are lost, and the producer retries until the grab is decided. If no
// answer ever comes, the error says that nothing was decided.
func TestFirstLookIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	isLook := func(request []byte) bool { return bytes.Contains(request, []byte("user_campaign")) }
	proxy, rdb := b.through(t, -1)
	proxy.SwallowAnswers(2, isLook)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.Equal(t, 2, proxy.Fired().Swallowed)

	proxy.SwallowAnswers(1_000, isLook)
	p = b.producer(t, func(c *producer.Config) { c.Deployment, c.CallTimeout = b.over(rdb), hopeless })
	_, err = p.Grab(t.Context(), grab("u2", "r2"))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.Len(t, b.grants(t), 1)
}
