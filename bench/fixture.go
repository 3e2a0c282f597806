package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

// fixture is the Redis server of one row, with an append-only file that is synced every second.
type fixture struct {
	server *testkit.RedisServer
	rdb    *redis.Client
	rounds int // deployments so far
}

func newFixture(ctx context.Context) (*fixture, error) {
	server, err := testkit.StartRedis(ctx, testkit.RedisOptions{})
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	opts := server.Options()
	opts.PoolSize, opts.ReadTimeout = 64, 30*time.Second
	return &fixture{server: server, rdb: redis.NewClient(opts)}, nil
}

func (r *fixture) close() error { return errors.Join(r.rdb.Close(), r.server.Close()) }

// deployment empties Redis and initializes a deployment in it. Each deployment has its own prefix. With an old prefix
// the shards would freeze, because this process has already seen more events under it.
func (r *fixture) deployment(ctx context.Context, n int) (*store.Store, error) {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, fmt.Errorf("empty redis: %w", err)
	}
	r.rounds++
	st, err := store.New(store.Config{Redis: r.rdb, Deployment: "bench",
		Space: hongbao.Space{Prefix: fmt.Sprintf("hb%d", r.rounds), Shards: n}})
	if err != nil {
		return nil, err
	}
	return st, st.Initialize(ctx, store.InitializeCall{Deployment: "bench"})
}

// spec returns a campaign of n packets that is open now, with one limit per user and one per device and day.
func spec(id string, n int) hongbao.Campaign {
	now := time.Now().Truncate(time.Millisecond)
	return campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: hongbao.Amount(n) * 500, Packets: int64(n),
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 100, Max: 900}, From: now.Add(-time.Minute),
		To:       now.Add(24 * time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "bench", Durability: hongbao.DurabilityFast,
		Limits: []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1},
			{By: "device", Per: hongbao.PerDay, Max: 5}},
	})
}

// load loads a campaign with a new seed into Redis, and returns it as the ledger stores it.
func (r *fixture) load(ctx context.Context, st *store.Store, c hongbao.Campaign) (ledger.Campaign, error) {
	seed := campaign.NewSeed()
	_, err := loaded.Seeded(ctx, st, c, seed)
	return ledger.Campaign{Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: campaign.Commit(c, seed)}, err
}

// newProducer returns a producer that grabs through rdb.
func newProducer(rdb *redis.Client, st *store.Store) (*producer.Producer, error) {
	if rdb != st.Redis() {
		st = st.Over(rdb)
	}
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	return producer.New(cfg)
}

// grabbing calls use with a producer, and closes it afterwards.
func (r *fixture) grabbing(ctx context.Context, st *store.Store, use func(p *producer.Producer) error) error {
	p, err := newProducer(r.rdb, st)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.Close(ctx))
}

// userGrab returns a grab of user i in campaign bench.
func userGrab(i int) *hongbao.Grab { return &hongbao.Grab{Campaign: "bench", User: user(i)} }

// deviceGrab adds the device that spec's limits require to userGrab. Two users share a device.
func deviceGrab(i int) *hongbao.Grab {
	g := userGrab(i)
	g.Facts = map[string]string{"device": fmt.Sprintf("d%07d", i/2)}
	return g
}

// grab makes a grab, and returns an error if the outcome is not want.
func grab(ctx context.Context, p *producer.Producer, g *hongbao.Grab, want hongbao.Outcome) error {
	a, err := p.Grab(ctx, g)
	if err == nil && a.Outcome != want {
		err = fmt.Errorf("user %s got %s", g.User, a.Outcome)
	}
	return err
}

func user(i int) string { return fmt.Sprintf("u%08d", i) }

// info returns the fields of one section of Redis' INFO, by name.
func (r *fixture) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := r.rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("INFO %s: %w", section, err)
	}
	out := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = value
		}
	}
	return out, nil
}

// cpu is the work of Redis, in microseconds of processor time: of the whole process (INFO cpu) and of its scripts (INFO
// commandstats). The field calls counts the script calls.
type cpu struct{ process, scripts, calls float64 }

func (r *fixture) cpu(ctx context.Context) (c cpu, err error) {
	used, err1 := r.info(ctx, "cpu")
	stats, err2 := r.info(ctx, "commandstats")
	if err := errors.Join(err1, err2); err != nil {
		return c, err
	}
	add := func(to *float64, text string, times float64) {
		v, err1 := strconv.ParseFloat(text, 64)
		*to, err = *to+v*times, errors.Join(err, err1)
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		add(&c.process, used[name], 1e6)
	}
	for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		for part := range strings.SplitSeq(stats[name], ",") {
			if usec, ok := strings.CutPrefix(part, "usec="); ok {
				add(&c.scripts, usec, 1)
			}
			if calls, ok := strings.CutPrefix(part, "calls="); ok {
				add(&c.calls, calls, 1)
			}
		}
	}
	return c, err
}
