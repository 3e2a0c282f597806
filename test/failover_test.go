package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// killReplicated kills a primary as soon as its replicas have all of its writes. Calls that are undecided at that time
// stay without an answer.
func killReplicated(t *testing.T, primary *testkit.RedisServer, replicas ...*testkit.RedisServer) {
	t.Helper()
	primary.Order(t, "CLIENT PAUSE 60000 WRITE")
	offset := func(server *testkit.RedisServer, field string) string {
		return regexp.MustCompile(field + `:(\d+)`).FindStringSubmatch(server.Order(t, "INFO replication"))[1]
	}
	for _, replica := range replicas {
		testkit.Eventually(t, startTime, func() bool {
			return offset(primary, "master_repl_offset") == offset(replica, "slave_repl_offset")
		}, "a replica has everything")
	}
	require.NoError(t, primary.Kill())
}

// The primary of a shard is killed under load, and its replica takes over. Later an orderly failover makes the first
// server the primary again. Meanwhile grabs are undecided and workers wait. Both times the shard freezes, because its
// server has changed, and opens without a person. No grant is lost or repeated.
func TestAPrimaryFailsOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	r := s.rains(6_000, 2)
	home, other := s.at.cluster.Masters[0], s.at.cluster.Replicas[0]
	for _, over := range []struct {
		to *testkit.RedisServer
		do func()
	}{
		{other, func() {
			killReplicated(t, home, other)
			s.at.cluster.AwaitPromotion(t, 0)
			require.NoError(t, home.Restart())
			home.Says(t, "INFO replication", "role:slave", "master_link_status:up")
		}},
		{home, func() { s.at.cluster.HandOver(t, home) }},
	} {
		r.pours("grants pour in")
		began, undecided := r.crowd.count()
		epoch := s.epochOf(0)
		over.do()
		testkit.Eventually(t, startTime, func() bool { return s.epochOf(0) > epoch }, "the shard opens automatically")
		require.Same(t, over.to, s.primaryOf(0))
		_, waited := r.crowd.count()
		require.Greater(t, waited, undecided, "some grabs were undecided")
		r.pours("grants continue")
		t.Logf("%d grants before it, %d undecided answers until the shard was open", began, waited-undecided)
	}
	r.ends()
}

// The primary of all shards is killed under load, and Sentinel promotes one of two replicas. No grant is lost or
// repeated.
func TestAPrimaryFailsOverBySentinel(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Sentinel, ""))
	s.ok("init")
	r := s.rains(6_000, 2)
	set := s.at.sentinels
	r.pours("grants pour in")
	began, undecided := r.crowd.count()
	var epochs [siteShards]int64
	for i := range epochs {
		epochs[i] = s.epochOf(i)
	}
	killReplicated(t, set.Primary, set.Replicas[:]...)
	set.AwaitPromotion(t)
	for i := range epochs {
		testkit.Eventually(t, startTime, func() bool { return s.epochOf(i) > epochs[i] }, "shard %d opens automatically", i)
	}
	_, waited := r.crowd.count()
	require.Greater(t, waited, undecided, "some grabs were undecided")
	r.pours("grants continue")
	t.Logf("%d grants before it, %d undecided answers until the shards were open", began, waited-undecided)
	r.ends()
}

// stall stops a replica and fills the socket buffers of its connection, so that later writes reach the primary only.
func stall(t *testing.T, primary, replica *testkit.RedisServer) {
	t.Helper()
	require.NoError(t, replica.Stop())
	client, pad := primary.Client(t), strings.Repeat("x", 4<<20)
	name := ""
	for i := 0; name == ""; i++ { // until the key is in a slot of this node
		err := client.Set(t.Context(), fmt.Sprint("pad", i), "", 0).Err()
		if err == nil {
			name = fmt.Sprint("pad", i)
		} else {
			require.ErrorContains(t, err, "MOVED")
		}
	}
	for range 15 {
		require.NoError(t, client.Append(t.Context(), name, pad).Err())
	}
}

// metaOn returns the number in a field of a shard's meta key on a server.
func (s *site) metaOn(server *testkit.RedisServer, shard int, field string) (n int64) {
	s.t.Helper()
	_, err := fmt.Sscan(server.Order(s.t, "HGET "+s.store.Shard(shard).Keys.Meta()+" "+field), &n)
	require.NoError(s.t, err)
	return n
}

// lossOf waits until `hongbao recover` reports a loss, and returns the verdict on a shard.
func (s *site) lossOf(shard int) recovery.ShardReport {
	s.t.Helper()
	testkit.Eventually(s.t, startTime, func() bool { code, _ := s.run("recover"); return code == 3 }, "the loss is reported")
	out := s.exits(3, []string{"recover", "--json"})
	var all struct{ Shards []recovery.ShardReport }
	require.NoError(s.t, json.Unmarshal([]byte(out), &all))
	return all.Shards[shard]
}

// refundLost refunds a campaign that Redis has lost. It waits until the campaign's grants are settled.
func (s *site) refundLost(id string) {
	s.t.Helper()
	testkit.EventuallyOK(s.t, startTime, func() error {
		_, text := s.run("campaign", "refund-lost", id)
		m := regexp.MustCompile(`--amount (\d+) --expect ([0-9a-f]+)`).FindStringSubmatch(text)
		if m == nil {
			return errors.New(text)
		}
		code, text := s.run("campaign", "refund-lost", id, "--amount", m[1], "--expect", m[2], "--by", "ann", "--why", "a test")
		if code != 0 || !strings.Contains(text, "by ann") {
			return errors.New(text)
		}
		return nil
	}, "%s is refunded", id)
}

// acceptLoss accepts the loss of shard 0, and returns the command's output. Reports of processes may change the digest
// meanwhile, so it retries with the new digest.
func (s *site) acceptLoss() (said string) {
	s.t.Helper()
	testkit.Eventually(s.t, startTime, func() bool {
		_, shown := s.run("recover")
		m := regexp.MustCompile(`--shard 0 --expect ([0-9a-f]+)`).FindStringSubmatch(shown)
		require.NotNil(s.t, m, shown)
		code, text := s.run("recover", "--accept-loss", "--shard", "0", "--expect", m[1], "--by", "ann", "--why", "the primary is gone")
		said = text
		return code == 0
	}, "the loss is accepted")
	require.Contains(s.t, said, "shard 0 is opened")
	return said
}

// A replica without the last grants is promoted, and the producer that announced them to users has been killed. With
// class fast these grants are lost in Redis, but the ledger and the topic still have them. With class replica no user
// was told of them. The test allows no withheld packets, so the shard stays frozen until a person accepts the loss.
// Other shards continue. `make losses` tests the case with withheld packets.
func TestAFailoverThatLosesGrants(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""), "HONGBAO_WORK_RESTORE_MARGIN=0s")
	s.ok("init")
	fast, safe, near := s.on(0, "fast"), s.on(0, "safe"), s.on(1, "near")
	s.create(fast, 100, hongbao.DurabilityFast, oneEach)
	s.create(safe, 100, hongbao.DurabilityReplica, oneEach)
	s.create(near, 100, hongbao.DurabilityReplica, oneEach)
	stop := s.work()
	gone, p := s.goneProducer(), s.producer()
	crowds := map[string]*people{}
	for _, id := range []string{fast, safe, near} {
		crowds[id] = s.people(gone.Producer, id)
		crowds[id].grab(t.Context(), 0, 20, 8)
	}
	s.allAgree()
	primary, replica := s.at.cluster.Masters[0], s.at.cluster.Replicas[0]
	before := s.metaOn(primary, 0, "seq")
	stall(t, primary, replica)
	crowds[fast].grab(t.Context(), 20, 40, 8)
	require.False(t, crowds[safe].once(t.Context(), user(20)), "no replica has the grant, so no answer reports it")
	s.allAgree() // the last grants are paid and published
	gone.kill()
	for _, c := range crowds {
		c.p = p
	}
	require.NoError(t, primary.Kill())
	require.NoError(t, replica.Cont())
	s.at.cluster.AwaitPromotion(t, 0)
	require.Equal(t, before, s.metaOn(replica, 0, "seq"), "the fault fired: the replica lacks 21 grants")

	v := s.lossOf(0)
	require.Equal(t, []int64{before, before + 21, before + 21}, []int64{v.Redis, v.Ledger, v.Topic})
	for _, u := range []int{0, 20, 50} { // users with a packet, with a lost packet, without a packet
		require.False(t, crowds[fast].once(t.Context(), user(u)), "user %d is undecided", u)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	crowds[near].grab(ctx, 20, 40, 8)
	require.NoError(t, ctx.Err(), "another shard continues")
	require.EqualValues(t, 1, s.metaOn(replica, 0, "epoch"), "the shard stays frozen")

	said := s.acceptLoss()
	lost := 0
	for id, want := range map[string]int{fast: 20, safe: 0} {
		require.Contains(t, said, "campaign "+id+" stays frozen")
		require.False(t, crowds[id].once(t.Context(), user(1)), "the grab is still undecided")
		without := 0
		for user := range crowds[id].granted {
			if !s.rdb.HExists(t.Context(), s.store.Home(id).Keys.Receipts(id), user).Val() {
				without++
			}
		}
		require.Equal(t, want, without, "users of %s who lost a packet that they were told of", id)
		lost += without
		s.refundLost(id)
	}
	again := s.on(0, "again")
	s.create(again, 50, hongbao.DurabilityFast, oneEach)
	crowds[again] = s.people(p, again)
	crowds[again].grab(ctx, 0, 50, 8)
	require.NoError(t, ctx.Err(), "the shard continues")
	s.allAgree()
	stop()
	for id, want := range map[string]int{fast: 40, safe: 21, near: 40, again: 50} {
		crowds[id].right(t)
		require.Equal(t, want, s.published(id), id)
	}
	t.Logf("Redis lost %d grants that users had an answer for, all of them paid and published", lost)
}

// without counts the users who were told of a packet and have no receipt in Redis.
func (s *site) without(c *people) (n int) {
	s.t.Helper()
	for user := range c.granted {
		if !s.rdb.HExists(s.t.Context(), s.store.Home(c.campaign).Keys.Receipts(c.campaign), user).Val() {
			n++
		}
	}
	return n
}

// killed is a producer with its own Redis client, as in another process. kill ends it like SIGKILL.
type killed struct {
	*producer.Producer

	kill func()
}

// goneProducer creates a producer whose kill leaves its state in Redis.
func (s *site) goneProducer() killed {
	s.t.Helper()
	return s.goneProducerOn(s.cfg.RedisClient())
}

// goneProducerOn creates a producer on rdb. Its kill leaves the producer's state in Redis and closes rdb.
func (s *site) goneProducerOn(rdb redis.UniversalClient) killed {
	s.t.Helper()
	p := s.producerOn(rdb)
	return killed{p, sync.OnceFunc(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(ended) // with a cancelled context Close leaves the producer's state in Redis
		require.NoError(s.t, rdb.Close())
	})}
}

// A replica without the last grants is promoted while no worker runs. Only producers know these grants, and the
// producer of the latest ones is idle since then. Another producer is busy on the other shard. When a worker starts,
// the shard opens without a person, and every user keeps the packet that they were told of.
func TestALossyFailoverThatIdleProducersHaveSeen(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	fast, safe, near := s.on(0, "fast"), s.on(0, "safe"), s.on(1, "near")
	s.create(fast, 100, hongbao.DurabilityFast, oneEach)
	s.create(safe, 100, hongbao.DurabilityReplica, oneEach)
	s.create(near, 20_050, hongbao.DurabilityFast, oneEach)
	stop := s.work()
	busy := s.people(s.producer(), fast)
	busy.grab(t.Context(), 0, 20, 8)
	secure := s.people(busy.p, safe)
	secure.grab(t.Context(), 0, 20, 8)
	s.allAgree()
	stop()
	own := s.cfg.RedisClient()
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	idle := s.people(s.producerOn(own), fast)

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	load, loaded := s.people(busy.p, near), make(chan struct{})
	pouring, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		load.grab(pouring, 0, 20_000, 4)
		close(loaded)
	}()
	primary, replica := s.at.cluster.Masters[0], s.at.cluster.Replicas[0]
	before := s.metaOn(primary, 0, "seq")
	stall(t, primary, replica)
	busy.grab(ctx, 20, 30, 8)
	idle.grab(ctx, 30, 60, 8)
	require.False(t, secure.once(ctx, user(20)), "no replica has the grant, so no answer reports it")
	require.NoError(t, primary.Kill())
	require.NoError(t, replica.Cont())
	s.at.cluster.AwaitPromotion(t, 0)
	require.Equal(t, before, s.metaOn(replica, 0, "seq"), "the fault fired: the replica lacks 41 grants")
	began := time.Now()
	stop = s.work()

	testkit.Eventually(t, startTime, func() bool { return s.epochOf(0) > 1 }, "the shard opens automatically")
	t.Logf("open %s after the worker was started", time.Since(began).Round(time.Millisecond))
	require.Zero(t, s.without(busy)+s.without(idle)+s.without(secure), "by the users' own records")
	for _, c := range []*people{busy, idle} {
		for user := range c.granted {
			testkit.Eventually(t, startTime, func() bool { return c.once(ctx, user) }, "user %s asks again", user)
		}
	}
	require.NoError(t, primary.Restart()) // class replica needs a replica
	primary.Says(t, "INFO replication", "role:slave", "master_link_status:up")
	secure.grab(ctx, 20, 30, 8) // user 20 has no final answer yet, and retries
	more := s.people(busy.p, fast)
	more.grab(ctx, 60, 100, 8)
	enough()
	<-loaded
	late := s.people(busy.p, near)
	late.grab(ctx, 20_000, 20_050, 8)
	granted, _ := late.count()
	require.Equal(t, 50, granted, "the other shard continues")
	require.NoError(t, ctx.Err())
	s.allAgree()
	stop()
	for _, c := range []*people{busy, idle, secure, more, load, late} {
		c.right(t)
	}
	require.Equal(t, 100, s.published(fast))
	require.Equal(t, 30, s.published(safe))
}
