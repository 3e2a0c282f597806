package producer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// rush lets many users grab at the same time, and counts the outcomes.
func rush(t *testing.T, p *producer.Producer, users int) map[hongbao.Outcome]int {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[hongbao.Outcome]int{}
	for i := range users {
		wg.Go(func() {
			a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), ""))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			out[a.Outcome]++
		})
	}
	wg.Wait()
	return out
}

// Many users grab from a new campaign at the same time. The producer looks the campaign up once and inspects the
// server once.
func TestFirstLooksAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	looks, rdb := b.counting(t, "hmget"+b.k.Keys.Campaign("rain"))
	infos, configs := &counted{what: "info"}, &counted{what: "config"}
	rdb.AddHook(infos)
	rdb.AddHook(configs)
	began := time.Now()
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 300}, rush(t, p, 300))
	found, err := producer.LookUp(p, "rain") // by a grab that began before the campaign was known
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []int64{1, 2}, []int64{looks.n.Load(), configs.n.Load()})
	watched := 1 + int64(time.Since(began).Seconds())
	require.LessOrEqual(t, infos.n.Load(), 5+watched, "one by the look, one by the inspection, one before each call that "+
		"begins before the script is loaded, two or rarely three, and one per second by the watch")
}

// The producer looks a missing campaign up only once a second, however many users grab. When the campaign is loaded,
// grabs find it.
func TestUnknownCampaignIsRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	looks, rdb := b.counting(t, "hmget"+b.k.Keys.Campaign("rain"))
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	began := time.Now()
	for range 5 {
		require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeUnknownCampaign: 200}, rush(t, p, 200))
	}
	require.LessOrEqual(t, looks.n.Load(), 1+int64(time.Since(began)/time.Second))
	b.load(t, spec("rain", 10))
	testkit.Eventually(t, 30*time.Second, func() bool {
		a, err := p.Grab(t.Context(), grab("u1", "r1"))
		require.NoError(t, err)
		return a.Outcome == hongbao.OutcomeGranted
	}, "the campaign is found")
}

func TestIdleLanesGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.producer(t, nil)
	for _, id := range []string{"rain", "snow"} {
		b.load(t, spec(id, 10))
		_, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: "u"})
		require.NoError(t, err)
	}
	p.Sweep(time.Now().Add(50 * time.Second))
	require.Equal(t, 2, p.Lanes())
	testkit.Eventually(t, 30*time.Second, func() bool { // wait for the end of the send loops
		p.Sweep(time.Now().Add(70 * time.Second))
		return p.Lanes() == 0
	}, "idle lanes are removed")
	a, err := p.Grab(t.Context(), grab("u2", ""))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
}

// The producer is connected to a Redis of another deployment, or has a wrong number of shards or a wrong key prefix.
// Grabs must fail as Broken, because unknown_campaign would be a final refusal, and nobody would look for the cause of
// frozen.
func TestForeignRedisIsNoUnknownCampaign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	space := b.store.Space()
	for what, cfg := range map[string]store.Config{
		"its shards is":     {Deployment: "test", Space: hongbao.Space{Prefix: space.Prefix, Shards: 2}},
		"its deployment is": {Deployment: "another", Space: space},
		"no deployment":     {Deployment: "test", Space: hongbao.Space{Prefix: testkit.Prefix(t), Shards: 1}},
	} {
		cfg.Redis = b.admin
		st, err := store.New(cfg)
		require.NoError(t, err)
		p := b.producer(t, func(c *producer.Config) { c.Deployment = deployment.Of(st, zap.NewNop()) })
		_, err = p.Grab(t.Context(), grab("u1", "r1"))
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%s: %v", what, err)
		require.ErrorContains(t, err, what)
	}
	require.Empty(t, b.entries(t))
}

// Redis loses a deployment that the producer has found there before. Grabs get frozen: the deployment was right.
func TestLostDeploymentIsFrozen(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	b.load(t, spec("rain", 10))
	p := b.producer(t, func(c *producer.Config) { c.UndecidedTimeout = 0 })
	_, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.NoError(t, b.admin.FlushAll(t.Context()).Err())
	for _, id := range []string{"rain", "hail"} {
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: "u2", RequestID: "r2"})
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeFrozen, a.Outcome, id)
	}
}

// A campaign that was just open vanishes from Redis. The producer raises an alarm and answers frozen, not a final
// refusal. When a campaign vanishes after its end, there is no alarm.
func TestVanishedCampaignIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	core, logs := observer.New(zap.WarnLevel)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.UndecidedTimeout = deployment.Of(b.store, zap.New(core)), 0 })
	ask := func(user string) hongbao.Outcome {
		a, err := p.Grab(t.Context(), grab(user, ""))
		require.NoError(t, err)
		return a.Outcome
	}
	b.load(t, spec("rain", 10))
	require.Equal(t, hongbao.OutcomeGranted, ask("u1"))
	require.NoError(t, b.admin.Rename(t.Context(), b.k.Keys.Campaign("rain"), b.k.Keys.Campaign("hidden")).Err())
	require.Equal(t, hongbao.OutcomeFrozen, ask("u2"))
	require.Equal(t, hongbao.OutcomeFrozen, ask("u2"))
	require.Equal(t, 1, logs.FilterField(zap.String("code", store.LostData)).Len())
	require.NoError(t, b.admin.Rename(t.Context(), b.k.Keys.Campaign("hidden"), b.k.Keys.Campaign("rain")).Err())
	require.Equal(t, hongbao.OutcomeGranted, ask("u2"))

	_, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeEnded, ask("u3"))
	require.NoError(t, b.admin.Del(t.Context(), b.k.Keys.Campaign("rain")).Err())
	require.Equal(t, hongbao.OutcomeUnknownCampaign, ask("u3"))
	require.Zero(t, p.Lanes())
}

// Redis is emptied while a producer runs. The producer raises an alarm, and no grab gets a final refusal.
func TestFlushUnderAProducer(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	core, logs := observer.New(zap.WarnLevel)
	looks, rdb := b.counting(t, "infoserver")
	p := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.UndecidedTimeout = deployment.Of(b.store.Over(rdb), zap.New(core)), 0
	})
	b.load(t, spec("rain", 10))
	_, err := p.Grab(t.Context(), grab("u1", ""))
	require.NoError(t, err)
	seen := looks.n.Load() + 2 // the first of these looks may have begun before the grab
	testkit.Eventually(t, 20*time.Second, func() bool { return looks.n.Load() >= seen }, "the watch has seen the grant")
	require.NoError(t, b.admin.FlushAll(t.Context()).Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		return logs.FilterField(zap.String("code", store.LostData)).Len() > 0
	}, "an alarm is raised")
	for _, id := range []string{"rain", "other"} {
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: "u1"})
		require.True(t, err != nil || !a.Outcome.Final(), "%s: %s", id, a.Outcome)
	}
}

// The producer ignores facts that no limit counts by. It rejects a grab if a fact of a limit is missing or is not an
// id.
func TestOnlyFactsOfLimitsAreJudged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withDevice(t, 10)
	p := b.producer(t, nil)
	g := &hongbao.Grab{Campaign: "rain", User: "u1",
		Facts: map[string]string{"device": "d1", "User Agent": "", "note": "a b"}}
	for i := range 20 {
		g.Facts[fmt.Sprint("f", i)] = "v"
	}
	a, err := p.Grab(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	for _, facts := range []map[string]string{nil, {"device": ""}, {"device": "a b"}, {"device": "-"}} {
		_, err = p.Grab(t.Context(), &hongbao.Grab{Campaign: "rain", User: "u2", Facts: facts})
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%v", facts)
		require.ErrorContains(t, err, `fact "device"`)
	}
}

// The producer forgets servers that it has not inspected for a while. A cluster client creates new node clients with
// each change of the topology.
func TestServersAreForgotten(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	cfg := producer.DefaultConfig()
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 1}, Deployment: "test"})
	require.NoError(t, err)
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	now := time.Now()
	for i := range 100 {
		node := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", 2+i)})
		require.NoError(t, node.Close())
		require.LessOrEqual(t, p.Inspected(node, now.Add(time.Duration(i)*100*time.Millisecond)), 10)
	}
}
