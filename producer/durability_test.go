package producer_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// bothFollow waits until both replicas have received all writes.
func (b *bundle) bothFollow(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := b.admin.Do(t.Context(), "WAIT", 2, 1000).Int()
		return err == nil && n == 2
	}, "both replicas follow")
}

// After a failover the primary has fewer replicas than the producer remembers, so the first WAIT asks for too many.
// WAIT must return the actual number before the client or the call times out.
func TestReplicaClassAfterAnOpening(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	second := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	b.bothFollow(t)
	impatient := b.server.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Second })
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.CallTimeout, c.DurabilityTimeout = b.over(impatient), 5*time.Second, 4*time.Second
	})
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	replicas := func() string { return b.admin.HGet(t.Context(), b.k.Keys.Meta(), "replicas").Val() }
	require.Equal(t, "2", replicas())

	require.NoError(t, second.Kill())
	testkit.Eventually(t, 20*time.Second, func() bool {
		servers, err := store.Inspect(t.Context(), b.admin)
		return err == nil && servers[0].Replicas == 1
	}, "the second replica is gone")
	require.NoError(t, b.admin.HDel(t.Context(), b.k.Keys.Meta(), "replicas").Err()) // as open.lua does
	_, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
}

// A replica lags by 200 ms, like a distant one, while other clients write all the time. Each grant still reaches it in
// time.
func TestReplicaClassOfASlowReplica(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	link := testkit.NewProxy(t, b.server.Addr)
	host, port, err := net.SplitHostPort(link.Addr)
	require.NoError(t, err)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"replicaof": host + " " + port}})
	b.bothFollow(t)
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		often := time.NewTicker(2 * time.Millisecond)
		defer often.Stop()
		for ctx.Err() == nil {
			<-often.C
			b.admin.Set(ctx, "busy", "x", 0)
		}
	}()
	defer func() { cancel(); <-wrote }()
	link.Delay(200 * time.Millisecond)
	patient := b.server.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.CallTimeout, c.DurabilityTimeout = b.over(patient), time.Minute, 15*time.Second
	})
	for i := range 5 {
		_, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r"))
		require.NoError(t, err, i)
	}
	require.Positive(t, link.Fired().Delayed)
}

func (b *bundle) loadClass(t *testing.T, class hongbao.Durability) {
	t.Helper()
	c := spec("rain", 10)
	c.Durability = class
	b.load(t, c)
}

// In a campaign of class replica, a grant is answered only after a replica has it. While the replica hangs the result
// is Unknown, and a later retry gets the receipt.
func TestReplicaClass(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	p := b.producer(t, func(c *producer.Config) {
		c.CallTimeout, c.DurabilityTimeout = hopeless, 150*time.Millisecond
	})
	var err error
	testkit.Eventually(t, 20*time.Second, func() bool { // a try that runs into CallTimeout does not name the reason
		_, err = p.Grab(t.Context(), grab("u0", "r0"))
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
		require.True(t, hongbao.IsOutage(err), "an outage: after a failover the new primary briefly has no replica")
		return strings.Contains(err.Error(), "no replica is connected")
	}, "the reason is named")

	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		_, err := p.Grab(t.Context(), grab("u0", "r0"))
		return err
	}, "the replica is connected")
	require.NoError(t, replica.Stop())
	testkit.Eventually(t, 20*time.Second, func() bool { // Redis may be too slow for CallTimeout
		_, err = p.Grab(t.Context(), grab("u1", "r1"))
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
		require.True(t, hongbao.IsOutage(err), "%v", err)
		return strings.Contains(err.Error(), "WAIT")
	}, "the reason is named")
	require.Len(t, b.grants(t)["u1"], 1, "granted, but not safe yet")
	_, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "a retry also waits for the write of the first try")
	require.NoError(t, replica.Cont())
	var a hongbao.Answer
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		a, err = p.Grab(t.Context(), grab("u1", "r1"))
		return err
	}, "the replica continues")
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	grants := b.grants(t)
	require.Len(t, grants["u1"], 1)
	require.Equal(t, grants["u1"][0].Packet, a.Receipts[0].Packet)
	testkit.Eventually(t, 30*time.Second, func() bool {
		n, err := replica.Client(t).XLen(t.Context(), b.k.Keys.Events()).Result()
		return err == nil && int(n) == len(b.entries(t))
	}, "the replica has the grant")
}

func TestFsyncClass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.loadClass(t, hongbao.DurabilityFsync)
	_, err := b.producer(t, nil).Grab(t.Context(), grab("u0", "r0"))
	servers, inspectErr := store.Inspect(t.Context(), b.admin)
	require.NoError(t, inspectErr)
	require.Len(t, servers, 1)
	require.Equal(t, "everysec", servers[0].AppendFsync)
	if servers[0].Version < "7.2" { // no WAITAOF there
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, `appendfsync is "everysec"`)
		require.ErrorContains(t, err, "set appendfsync always")
		require.Empty(t, b.entries(t))
	} else {
		require.NoError(t, err)
	}

	always := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}}), 1)
	always.loadClass(t, hongbao.DurabilityFsync)
	p := always.producer(t, nil)
	a, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.NoError(t, always.server.Kill())
	require.NoError(t, always.server.Restart())
	require.Len(t, always.grants(t), 1, "the grant was on disk before the answer")
}

func TestServerCheck(t *testing.T) {
	t.Parallel()
	good := store.Server{Version: "7.0.15", Role: "master", MaxMemoryPolicy: "noeviction", AppendOnly: true,
		AppendFsync: "always", Replicas: 1}
	for _, class := range []hongbao.Durability{hongbao.DurabilityFast, hongbao.DurabilityReplica,
		hongbao.DurabilityFsync} {
		require.NoError(t, good.Check(class))
	}
	bad := store.Server{Version: "6.2.1", Role: "slave", MaxMemoryPolicy: "allkeys-lru"}
	err := bad.Check(hongbao.DurabilityReplica)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	for _, part := range []string{"6.2.1 is too old", `role is "slave"`, "allkeys-lru", "no replica"} {
		require.ErrorContains(t, err, part)
	}
	forgets := good
	forgets.AppendOnly = false
	require.ErrorContains(t, forgets.Check(hongbao.DurabilityFsync), "appendonly is no")
	require.ErrorContains(t, forgets.CheckAppendOnly(), "appendonly is no")
	for _, class := range []hongbao.Durability{hongbao.DurabilityFast, hongbao.DurabilityReplica} {
		require.NoError(t, forgets.Check(class), "a producer does not reject it: unsafe.allow may permit it")
	}
	modern := good
	modern.Version, modern.AppendFsync = "7.2.0", "everysec"
	require.NoError(t, modern.Check(hongbao.DurabilityFsync))
	require.True(t, modern.NeedsWaitAOF())
	for version, ok := range map[string]bool{"7.0.0": true, "8.2.1": true, "10.0": true, "6.9.9": false, "": false,
		"x.y": false} {
		s := good
		s.Version = version
		require.Equal(t, ok, s.Check(hongbao.DurabilityFast) == nil, version)
	}
}

// noDial is a hook that makes pipelines fail as if no connection could be made.
type noDial struct{ on atomic.Bool }

func (h *noDial) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *noDial) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *noDial) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.on.Load() {
			return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return next(ctx, cmds)
	}
}

// The connection fails after the grant, when the producer starts to wait for the replica. The error must be Unknown.
func TestDurabilityOutOfReach(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	rdb, hook := b.server.Client(t), &noDial{}
	rdb.AddHook(hook)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.CallTimeout = b.over(rdb), hopeless })
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		_, err := p.Grab(t.Context(), grab("u0", "r0"))
		return err
	}, "the replica is connected")
	hook.on.Store(true)
	_, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.Len(t, b.grants(t)["u1"], 1)
	hook.on.Store(false)
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, b.grants(t)["u1"][0].Packet, a.Receipts[0].Packet)
}

// switched is a hook that runs do after the answer of a script. The test uses it to switch to another server, as a
// Sentinel client does after a failover.
type switched struct {
	armed atomic.Bool
	do    func()
}

func (h *switched) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *switched) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *switched) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && cmd.Name() == "evalsha" && h.armed.CompareAndSwap(true, false) {
			h.do()
		}
		return err
	}
}

// The old primary decides a grab while it is cut off from its replica, which was promoted. The new primary has a
// replica, but that does not have the grant either. The producer must not report such a grant as safe.
func TestReplicaClassOverAFailover(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	next := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: next})
	var target atomic.Pointer[string]
	target.Store(&b.server.Addr)
	rdb := b.server.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *target.Load())
		}
	})
	hook := &switched{do: func() {
		target.Store(&next.Addr)
		require.NoError(t, b.server.Kill())
	}}
	rdb.AddHook(hook)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		_, err := p.Grab(t.Context(), grab("u0", "r0"))
		return err
	}, "the replica is connected")
	promoted := next.Client(t)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return promoted.HExists(t.Context(), b.k.Keys.Receipts("rain"), "u0").Val()
	}, "the replica has received all writes")
	require.NoError(t, promoted.ReplicaOf(t.Context(), "NO", "ONE").Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := promoted.Do(t.Context(), "WAIT", 1, 100).Int()
		return err == nil && n == 1
	}, "the new primary has a replica")

	hook.armed.Store(true)
	storetest.KeepOpen(t, b.store.Over(promoted))
	testkit.Eventually(t, 20*time.Second, func() bool {
		a, err := p.Grab(t.Context(), grab("u1", "r1"))
		if err == nil && a.Outcome != hongbao.OutcomeFrozen {
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		}
		return err == nil && a.Outcome == hongbao.OutcomeGranted
	}, "the packet is granted")
	require.False(t, hook.armed.Load(), "the fault fired")
	require.True(t, promoted.HExists(t.Context(), b.k.Keys.Receipts("rain"), "u1").Val(), "the answer reported a grant")
}

// The Redis user may not call WAIT. The error must be Unknown, because the grant was already made.
func TestDurabilityRefused(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	p := b.producer(t, nil)
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		_, err := p.Grab(t.Context(), grab("u0", "r0"))
		return err
	}, "the replica is connected")
	require.NoError(t, b.admin.Do(t.Context(), "ACL", "SETUSER", "default", "-wait").Err())
	_, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.ErrorContains(t, err, "NOPERM")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.False(t, hongbao.IsOutage(err), "%v", err)
	require.Len(t, b.grants(t)["u1"], 1, "the packet was granted")
	require.NoError(t, b.admin.Do(t.Context(), "ACL", "SETUSER", "default", "+wait").Err())
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, b.grants(t)["u1"][0].Packet, a.Receipts[0].Packet)
}

// Either of two replicas may be promoted, so a grant of class replica waits until both have it. This also holds for a
// producer that starts while one replica is down. Config.Replicas can lower the number of replicas.
func TestReplicaClassWaitsForAllReplicas(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.loadClass(t, hongbao.DurabilityReplica)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	second := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: b.server})
	b.bothFollow(t)
	quick := func(c *producer.Config) { c.CallTimeout, c.DurabilityTimeout = hopeless, 150*time.Millisecond }
	p := b.producer(t, quick)
	var err error
	testkit.EventuallyOK(t, 20*time.Second, func() error { // a replica may be slow
		_, err := p.Grab(t.Context(), grab("u0", "r0"))
		return err
	}, "the grant is on both replicas")

	require.NoError(t, second.Kill())
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := b.admin.Do(t.Context(), "WAIT", 2, 10).Int()
		return err == nil && n == 1
	}, "the second replica is gone")
	for _, p := range []*producer.Producer{p, b.producer(t, quick)} {
		testkit.Eventually(t, 20*time.Second, func() bool { // Redis may be too slow for CallTimeout
			_, err = p.Grab(t.Context(), grab("u1", "r1"))
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
			return strings.Contains(err.Error(), "WAIT")
		}, "the reason is named")
	}
	lowered := b.producer(t, func(c *producer.Config) {
		quick(c)
		c.Replicas = 1
	})
	var a hongbao.Answer
	testkit.EventuallyOK(t, 20*time.Second, func() (err error) {
		a, err = lowered.Grab(t.Context(), grab("u1", "r1"))
		return err
	}, "one replica is enough")
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
}
