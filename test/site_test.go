package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// redisAt has the servers of a Redis in one topology, and the configuration for them.
type redisAt struct {
	mode string
	env  []string

	cluster   *testkit.RedisCluster
	sentinels *testkit.RedisSentinels
	primaries []*testkit.RedisServer
	hand      *byHand
}

// atRedis starts the servers of a Redis with the given program. Each topology has a replica, which class replica needs.
func atRedis(t *testing.T, mode, program string) *redisAt {
	t.Helper()
	opts := testkit.RedisOptions{Binary: program, Args: map[string]string{"appendfsync": "always"}}
	at := &redisAt{mode: mode}
	var addrs string
	switch mode {
	case configs.Cluster:
		at.cluster = testkit.NewRedisCluster(t, opts)
		at.primaries, addrs = at.cluster.Masters[:], strings.Join(at.cluster.Addrs(), ",")
	case configs.Sentinel:
		at.sentinels = testkit.NewRedisSentinels(t, opts)
		at.primaries, addrs = []*testkit.RedisServer{at.sentinels.Primary}, strings.Join(at.sentinels.Addrs(), ",")
		at.env = append(at.env, "HONGBAO_REDIS_MASTER_NAME="+testkit.SentinelName)
	default:
		primary := testkit.NewRedis(t, opts)
		opts.ReplicaOf = primary
		testkit.NewRedis(t, opts).Says(t, "INFO replication", "master_link_status:up")
		at.primaries, addrs = []*testkit.RedisServer{primary}, primary.Addr
	}
	at.env = append(at.env, "HONGBAO_REDIS_MODE="+mode, "HONGBAO_REDIS_ADDRS="+addrs)
	return at
}

// site is a deployment of three shards with both sinks. Tests use it through the built program and through producers.
// On a cluster each shard has its own primary.
type site struct {
	*cli
	at    *redisAt
	topic string
	cfg   *configs.Config
	rdb   redis.UniversalClient
	store *store.Store
}

// siteShards is the number of shards of a site.
const siteShards = 3

func newSite(t *testing.T, at *redisAt, more ...string) *site {
	t.Helper()
	broker := testkit.Kafka(t)
	s := &site{at: at,
		topic: broker.Topic(t, 2, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})}
	s.cli = newCLI(t, map[string]string{
		"DEPLOYMENT_SHARDS": fmt.Sprint(siteShards), "DEPLOYMENT_SINKS": "balance,kafka", "REDIS_READ_TIMEOUT": "1200ms",
		"REDIS_DIAL_TIMEOUT": "1s", "KAFKA_BROKERS": broker.Addr, "KAFKA_TOPIC": s.topic, "KAFKA_PARTITIONS": "2",
		"CONSUMER_LEASE": "4s", "PUBLISHER_REQUEST_TIMEOUT": "1500ms", "PUBLISHER_ATTEMPT_TIME": "2s",
		"PUBLISHER_MAX_CLAIM_AGE": "2500ms",
	}, slices.Concat(at.env, more)...)
	var err error
	s.cfg, err = configs.Load("", s.env, nil)
	require.NoError(t, err)
	s.rdb = s.cfg.RedisClient()
	t.Cleanup(func() { require.NoError(t, s.rdb.Close()) })
	s.store, err = store.New(store.Config{Redis: s.rdb, Space: hongbao.Space{Prefix: s.prefix, Shards: s.cfg.Deployment.Shards}, Deployment: s.cfg.Deployment.ID})
	require.NoError(t, err)
	return s
}

// on returns a campaign id whose home is the shard.
func (s *site) on(shard int, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); s.store.Home(id).Index() == shard {
			return id
		}
	}
}

// says runs a command that must succeed, and requires that its output contains each of parts.
func (s *site) says(args []string, parts ...string) string {
	s.t.Helper()
	out := s.ok(args...)
	for _, part := range parts {
		require.Contains(s.t, out, part, "%v", args)
	}
	return out
}

// create creates and loads a campaign that is open now.
func (s *site) create(id string, packets int, class hongbao.Durability, more string) {
	s.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	file := writeFile(s.t, id+".yaml", fmt.Sprintf(`id: %s
name: Spring rain
kind: red_packet
currency: CNY
total: %d
packets: %d
split: {mode: random, min: 1, max: 300}
window: {from: %s, to: %s}
time_zone: Asia/Shanghai
sponsor: acme
durability: %s
%s`, id, 200*packets, packets, now.Add(-time.Minute).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339),
		class, more))
	s.ok("campaign", "create", file)
	s.ok("campaign", "load", id)
}

// work starts a worker. The returned function stops it.
func (s *site) work() (stop func()) {
	s.t.Helper()
	_, stop = s.startWork()
	return stop
}

func (s *site) startWork() (p *testkit.Program, stop func()) {
	s.t.Helper()
	cmd := exec.Command(s.path, "work")
	cmd.Env = s.env
	p = testkit.StartProgram(s.t, cmd)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the worker's log:\n%s", p.Err.String())
		}
	})
	return p, func() {
		s.t.Helper()
		p.Signal(syscall.SIGTERM)
		require.Zero(s.t, p.Wait(time.Minute), p.Err.String())
	}
}

func (s *site) producer() *producer.Producer {
	s.t.Helper()
	return s.producerOn(s.rdb)
}

// producerOn creates a producer on rdb. With a separate client it has its own state, as in another process.
func (s *site) producerOn(rdb redis.UniversalClient) *producer.Producer {
	s.t.Helper()
	cfg := s.cfg.Producer
	st := s.store
	if rdb != s.rdb {
		st = st.Over(rdb)
	}
	cfg.Deployment = deployment.Of(st, zap.NewNop()) // discards alarms
	p, err := producer.New(cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, p.Close(context.Background())) })
	return p
}

// allAgree waits until both sinks have finished, and requires that the audit of Redis, the ledger and the topic agrees.
func (s *site) allAgree() {
	s.t.Helper()
	s.says([]string{"audit", "--wait", "40s"}, "agrees")
}

// published returns the number of records of a campaign in the topic. It requires that no event occurs twice.
func (s *site) published(campaign string) int {
	s.t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(s.ok("tail", "--campaign", campaign)) {
		var record struct{ Event string }
		require.NoError(s.t, json.Unmarshal([]byte(line), &record))
		require.False(s.t, seen[record.Event], "event %s is twice in the topic", record.Event)
		seen[record.Event] = true
	}
	return len(seen)
}

// grabber answers grabs: a producer, or a server over HTTP.
type grabber interface {
	Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error)
}

// people are users who grab in a campaign with request ids. They retry until they have a final answer.
type people struct {
	p        grabber
	campaign string

	mu        sync.Mutex
	granted   map[string]map[int64]hongbao.Receipt // the packets that each user was told of
	undecided int                                  // undecided answers
	busy      int                                  // undecided answers with outcome busy
	failed    error                                // last error that is not an outage
	last      string                               // last answer without a packet, and its error
}

func (s *site) people(p grabber, campaign string) *people {
	return &people{p: p, campaign: campaign, granted: map[string]map[int64]hongbao.Receipt{}}
}

// grab lets the users first to last-1 grab until each has a final answer, with atOnce users at a time.
func (c *people) grab(ctx context.Context, first, last, atOnce int) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				for !c.once(ctx, user(i)) && ctx.Err() == nil {
				}
			}
		})
	}
	for i := first; i < last && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
}

// once sends one grab of a user, and reports whether the answer was final.
func (c *people) once(ctx context.Context, user string) (final bool) {
	a, err := c.p.Grab(ctx, &hongbao.Grab{Campaign: c.campaign, User: user, RequestID: "r-" + user})
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Outcome != hongbao.OutcomeGranted {
		c.last = fmt.Sprint(a.Outcome, " ", err)
	}
	switch {
	case err != nil && hongbao.IsOutage(err) || err == nil && !a.Outcome.Final():
		c.undecided++
		if a.Outcome == hongbao.OutcomeBusy {
			c.busy++
		}
		return false
	case err != nil && ctx.Err() != nil:
		return false
	case err != nil:
		c.failed = err
		return true
	}
	if a.Outcome == hongbao.OutcomeGranted {
		if c.granted[user] == nil {
			c.granted[user] = map[int64]hongbao.Receipt{}
		}
		c.granted[user][a.Receipts[0].Packet] = a.Receipts[0]
	}
	return true
}

// lastAnswer returns the last answer without a packet.
func (c *people) lastAnswer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// count returns how many users have a packet, and how many answers were undecided.
func (c *people) count() (granted, undecided int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.granted), c.undecided
}

// right checks that no call failed except by an outage, that each user was told of one packet only, and that no two
// users were told of the same packet.
func (c *people) right(t *testing.T) {
	t.Helper()
	require.NoError(t, c.failed)
	owner := map[int64]string{}
	for user, packets := range c.granted {
		require.Len(t, packets, 1, "%s got two packets for one request id", user)
		for packet := range packets {
			require.Empty(t, owner[packet], "packet %d went to two users", packet)
			owner[packet] = user
		}
	}
}

// rain is a campaign on shard 0 in which a crowd grabs while workers run.
type rain struct {
	*site
	id      string
	packets int
	crowd   *people

	ctx   context.Context // bounds the whole test
	halt  func()          // stops the crowd
	stops []func()        // functions that stop the workers
}

// oneEach limits a specification to one packet for each user.
const oneEach = "limits:\n  - {by: user, per: campaign, max: 1}\n"

// rains starts a crowd with as many users as the campaign has packets.
func (s *site) rains(packets, workers int) *rain {
	s.t.Helper()
	r := &rain{site: s, id: s.on(0, "rain"), packets: packets}
	s.create(r.id, packets, hongbao.DurabilityReplica, oneEach)
	for range workers {
		p, stop := s.startWork()
		p.Says(startTime, `"message":"working"`)
		r.stops = append(r.stops, stop)
	}
	r.crowd = s.people(s.producer(), r.id)
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	s.t.Cleanup(cancel)
	enough, enoughNow := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.ctx, r.halt = ctx, func() {
		enoughNow()
		<-ended
	}
	s.t.Cleanup(r.halt)
	go func() {
		r.crowd.grab(enough, 0, packets, 32)
		close(ended)
	}()
	return r
}

// pours waits until the crowd got more packets.
func (r *rain) pours(what string) {
	r.t.Helper()
	began, _ := r.crowd.count()
	testkit.EventuallyOK(r.t, startTime, func() error {
		n, undecided := r.crowd.count()
		if n > began+200 {
			return nil
		}
		return fmt.Errorf("%s: %d granted, %d before, %d answers undecided, the last one: %s", what, n, began, undecided,
			r.crowd.lastAnswer())
	}, "%s", what)
}

// ends lets all users repeat their grab. Then it checks that each user has one packet, which is paid and published
// once.
func (r *rain) ends() {
	r.t.Helper()
	r.halt()
	r.crowd.grab(r.ctx, 0, r.packets, 64)
	require.NoError(r.t, r.ctx.Err())
	r.crowd.right(r.t)
	final, _ := r.crowd.count()
	require.Equal(r.t, r.packets, final, "everyone has one packet")
	r.allAgree()
	for _, stop := range r.stops {
		stop()
	}
	require.Equal(r.t, r.packets, r.published(r.id))
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// startTime is the longest time that a server, a worker or a step may take.
const startTime = 30 * time.Second
