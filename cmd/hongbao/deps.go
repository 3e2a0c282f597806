package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/publisher"
)

// deps are what a command talks to. What a command does not ask for is not opened.
type deps struct {
	cfg    *configs.Config
	log    *zap.Logger
	space  *shards.Layout
	worker string // names this process, never twice
	makes  bool   // `hongbao init`: the deployment's topic is made if it is missing

	redis   redis.UniversalClient
	ledger  *ledger.Ledger
	founded founding
	mu      sync.Mutex // sinks are opened side by side
	closes  []func() error
}

// open reads the configuration and makes the log.
func open(cmd *cobra.Command) (*deps, error) {
	cfg, err := load(cmd)
	if err != nil {
		return nil, err
	}
	return newDeps(cfg)
}

func newDeps(cfg *configs.Config) (*deps, error) {
	log, err := cfg.Logger(os.Stderr)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(redisLog{log.Sugar()}) // else the library writes to standard error by itself
	space, err := shards.NewLayout(cfg.Space())
	if err != nil {
		return nil, err
	}
	return &deps{cfg: cfg, log: log, space: space, worker: workerName()}, nil
}

// redisLog takes what go-redis has to say: connections that come and go. What matters comes back as an error besides.
type redisLog struct{ *zap.SugaredLogger }

// Printf implements the library's logger.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.Debugf("redis client: "+format, v...)
}

// workerName is the host's name and something that no other process has.
func workerName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// atEnd notes what close has to do.
func (d *deps) atEnd(f func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closes = append(d.closes, f)
}

// close closes everything in the reverse order, into err.
func (d *deps) close(err *error) {
	for i := len(d.closes) - 1; i >= 0; i-- {
		*err = errors.Join(*err, d.closes[i]())
	}
	_ = d.log.Sync() // a terminal can't be synced
}

// checkSinks refuses sinks that the deployment does not have.
func (d *deps) checkSinks(sinks []string) error {
	for _, s := range sinks {
		if !slices.Contains(d.cfg.Deployment.Sinks, s) {
			return usage("--sink %.40q is not among deployment.sinks (%s)", s, strings.Join(d.cfg.Deployment.Sinks, ", "))
		}
	}
	return nil
}

// openRedis connects, and refuses a Redis that was not founded as this deployment's or that would lose receipts. It writes nothing.
func (d *deps) openRedis(ctx context.Context) error {
	if err := d.reachRedis(ctx); err != nil {
		return err
	}
	mark, err := shards.Open(ctx, d.redis, d.space, d.cfg.Deployment.ID)
	if err != nil {
		return fmt.Errorf("redis at %s: %w", strings.Join(d.cfg.Redis.Addrs, ","), err)
	}
	return d.founded.asRedis(mark.Founding)
}

// reachRedis connects, and refuses a Redis that would lose receipts.
func (d *deps) reachRedis(ctx context.Context) error {
	d.redis = d.cfg.RedisClient()
	d.atEnd(d.redis.Close)
	return d.checkRedis(ctx, hongbao.Fast)
}

// founding compares what the ledger and Redis were founded as. Sinks are opened side by side.
type founding struct {
	mu            sync.Mutex
	ledger, redis *string
}

func (f *founding) asLedger(founding string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger = &founding
	return f.check()
}

func (f *founding) asRedis(founding string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.redis = &founding
	return f.check()
}

// check refuses a ledger and a Redis that were not founded together, whatever their names. f.mu is held.
func (f *founding) check() error {
	if f.ledger == nil || f.redis == nil || *f.ledger == *f.redis {
		return nil
	}
	return hongbao.Errorf(hongbao.Broken, "the ledger and this Redis were not founded together (founding %q and %q), though both say that they are this "+
		"deployment's: point ledger.dsn or redis.addrs to the right one", *f.ledger, *f.redis)
}

// away says what to do about a server that can't be reached; other errors say it themselves.
func away(knob string, err error) error {
	if !hongbao.IsOutage(err) {
		return err
	}
	return fmt.Errorf("%w; see that it runs and that %s names it, then run this again (`hongbao config check --connect` tries every server)", err, knob)
}

// checkRedis looks at each server's settings, for a campaign of the durability class. What unsafe.allow names is warned of only.
func (d *deps) checkRedis(ctx context.Context, class hongbao.Durability) error {
	servers, err := shards.Inspect(ctx, d.redis)
	if err != nil {
		return away("redis.addrs", fmt.Errorf("redis at %s: %w", strings.Join(d.cfg.Redis.Addrs, ","), err))
	}
	for i := range servers {
		if err := errors.Join(d.checkMode(&servers[i]), d.checkRunID(&servers[i])); err != nil {
			return err
		}
		err := servers[i].Check(class)
		if aof := servers[i].CheckAppendOnly(); aof != nil && err == nil {
			err = aof
			if d.allows(configs.UnsafeRedisAppendOnly) {
				d.log.Warn("unsafe.allow: this Redis has no append-only file, so a restart would forget campaigns and receipts")
				continue
			}
		}
		if err != nil && d.allows(configs.UnsafeRedis) {
			d.log.Warn("unsafe.allow: this Redis may lose receipts", zap.Error(err))
			continue
		}
		if err != nil {
			return fmt.Errorf("redis at %s: %w", strings.Join(d.cfg.Redis.Addrs, ","), err)
		}
	}
	return nil
}

// checkMode refuses a node of a cluster and a Sentinel under another redis.mode: they answer some calls and send others away.
func (d *deps) checkMode(s *shards.Server) error {
	what := map[string]string{
		"cluster":  "a node of a Redis Cluster: set redis.mode to cluster",
		"sentinel": "a Sentinel: set redis.mode to sentinel, and redis.master_name to what it calls the primary",
	}[s.Mode]
	if what == "" || s.Mode == "cluster" && d.cfg.Redis.Mode == configs.Cluster {
		return nil
	}
	return hongbao.Errorf(hongbao.Broken, "redis at %s is %s", strings.Join(d.cfg.Redis.Addrs, ","), what)
}

// checkRunID refuses a server by whose INFO nobody can tell that it was started anew.
func (d *deps) checkRunID(s *shards.Server) error {
	if s.RunID != "" {
		return nil
	}
	if d.allows(configs.UnsafeRedisRunID) {
		d.log.Warn("unsafe.allow: this Redis hides its run_id, so nobody notices that it was started anew or that another server took over")
		return nil
	}
	return hongbao.Errorf(hongbao.Broken, "redis at %s does not tell its run_id (INFO server), so nobody would notice that it was started anew or that another "+
		"server took over: if it has lost grants by then, its shards freeze only when a caller comes who has seen them, and others are told of packets that "+
		"belong to somebody already. Take a Redis that tells it, or add %s to unsafe.allow", strings.Join(d.cfg.Redis.Addrs, ","), configs.UnsafeRedisRunID)
}

func (d *deps) allows(name string) bool {
	return slices.Contains(d.cfg.Unsafe.Allow, name)
}

// openLedger connects, and refuses a ledger that was not founded as this deployment's. It writes nothing.
func (d *deps) openLedger(ctx context.Context) (err error) {
	d.ledger, err = d.newLedger(ctx)
	return err
}

func (d *deps) newLedger(ctx context.Context) (*ledger.Ledger, error) {
	l, err := d.reachLedger(ctx)
	if err != nil {
		return nil, err
	}
	has, err := l.Deployment(ctx)
	if err == nil {
		err = has.Is(d.deployment())
	}
	if err == nil {
		err = d.founded.asLedger(has.Founding)
	}
	if err != nil {
		return nil, away("ledger.dsn", errors.Join(err, l.Close()))
	}
	d.atEnd(l.Close)
	return l, nil
}

// reachLedger connects to a ledger that has its tables, whoever it belongs to.
func (d *deps) reachLedger(ctx context.Context) (*ledger.Ledger, error) {
	cfg, err := d.ledgerConfig()
	if err != nil {
		return nil, err
	}
	l, err := ledger.Open(ctx, cfg)
	if err != nil {
		return nil, away("ledger.dsn", err)
	}
	return l, nil
}

// ledgerConfig refuses a ledger that nobody has named: a file in the working directory would be another one each time.
func (d *deps) ledgerConfig() (ledger.Config, error) {
	cfg := d.cfg.LedgerConfig()
	if cfg.DSN == "" {
		return cfg, usage("ledger.dsn is empty: give the path of an SQLite file, or with ledger.driver a connection string of PostgreSQL or MySQL")
	}
	return cfg, nil
}

// deployment is what the configuration says that this is.
func (d *deps) deployment() ledger.Deployment {
	return ledger.Deployment{ID: d.cfg.Deployment.ID, KeyPrefix: d.cfg.Deployment.KeyPrefix, Shards: d.cfg.Deployment.Shards}
}

// plans keeps the plans of the ledger's campaigns.
func (d *deps) plans() (*campaign.Plans, error) {
	cfg := d.cfg.PlansConfig()
	cfg.Source = func(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, error) {
		c, found, err := d.ledger.Campaign(ctx, id)
		if err == nil && !found { // with a remote: no attempt is lost, as in the settler
			err = hongbao.Heldf("campaign %s is not in the ledger, its grants wait: is it the right ledger, and not an older copy?", id)
		}
		return c.Spec, c.Seed, err
	}
	return campaign.NewPlans(cfg)
}

// campaign reads a campaign that must be in the ledger.
func (d *deps) campaign(ctx context.Context, id string) (ledger.StoredCampaign, error) {
	c, found, err := d.ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = errNoCampaign(id)
	}
	return c, err
}

func errNoCampaign(id string) error {
	return hongbao.Errorf(hongbao.Permanent, "campaign %.80q is not in the ledger: `hongbao campaign create` makes it, "+
		"`hongbao campaign list` shows those that are there", id)
}

func (d *deps) store() (*campaign.Store, error) {
	cfg := d.cfg.StoreConfig()
	cfg.Redis, cfg.Space = d.redis, d.space.Space
	if d.ledger != nil {
		cfg.Codes = d.ledger.Codes
	}
	return campaign.NewStore(cfg)
}

// publisher makes the publisher of sink kafka; needs Redis. The caller's context bounds the check of the topic.
func (d *deps) publisher(ctx context.Context) (*publisher.Publisher, error) {
	return d.publisherTo(ctx, d.cfg.Kafka.Topic, d.cfg.ClaimsConfig(), &shards.Reader{Redis: d.redis, Space: d.space})
}

// publisherTo makes a publisher to a topic, with claims of its own.
func (d *deps) publisherTo(ctx context.Context, topic string, cc dedup.Config, entries publisher.Entries) (*publisher.Publisher, error) {
	cc.Redis, cc.Space, cc.Owner = d.redis, d.space.Space, d.worker
	claims, err := dedup.NewClaims(cc)
	if err != nil {
		return nil, err
	}
	pc := d.cfg.PublisherConfig()
	pc.Worker, pc.Topic, pc.Campaigns = d.worker, topic, &campaignSource{deps: d}
	pc.Create = pc.Create && (d.makes || topic != d.cfg.Kafka.Topic)
	p, err := publisher.New(pc, claims, entries)
	if err != nil {
		return nil, err
	}
	report, err := p.Check(ctx)
	if err != nil {
		p.Close()
		return nil, away("kafka.brokers", fmt.Errorf("kafka at %s: %w", strings.Join(d.cfg.Kafka.Brokers, ","), err))
	}
	d.atEnd(func() error { p.Close(); return nil })
	for _, w := range append(report.Warnings, report.Skipped...) {
		d.log.Warn("topic", zap.String("topic", topic), zap.String("about", w))
	}
	return p, nil
}
