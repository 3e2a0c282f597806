package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const (
	shardCount = 4
	perShard   = 2
	partitions = 4
	topicName  = "hongbao.grants"
	fresh      = "hongbao.copy" // topic to which events are replayed
	lease      = 4 * time.Second
)

// servers are the real servers of the run.
type servers struct {
	redis string                  // address of the first primary
	set   *testkit.RedisSentinels // nil for a single Redis
	rdb   redis.UniversalClient
	store *store.Store
	// ledger is the kind of the ledger's database; driver is the name of its driver for database/sql.
	ledger, driver, dsn string
	kafka               *testkit.KafkaBroker
	cfg                 *configs.Config
}

func (s *soak) startServers(ctx context.Context) error {
	v := &s.servers
	var err error
	if err := s.startRedis(ctx); err != nil {
		return fmt.Errorf("start redis: %w", err)
	}
	if err := s.startLedger(ctx); err != nil {
		return fmt.Errorf("start the ledger's server: %w", err)
	}
	if v.kafka, err = testkit.StartKafka(ctx, testkit.KafkaOptions{}); err != nil {
		return fmt.Errorf("start kafka: %w", err)
	}
	for _, name := range []string{topicName, fresh} {
		if err := v.kafka.CreateTopic(ctx, name, partitions, nil); err != nil {
			return fmt.Errorf("make topic %s: %w", name, err)
		}
	}
	for name, value := range map[string]string{
		"DEPLOYMENT_ID": "soak", "DEPLOYMENT_SHARDS": fmt.Sprint(shardCount),
		"REDIS_READ_TIMEOUT": "1s", "REDIS_POOL_SIZE": "64",
		"LEDGER_DRIVER": v.ledger, "LEDGER_DSN": v.dsn, "LEDGER_TIMEOUT": "20s", "KAFKA_BROKERS": v.kafka.Addr,
		"KAFKA_TOPIC":      topicName,
		"KAFKA_PARTITIONS": fmt.Sprint(partitions), "CONSUMER_LEASE": lease.String(), "CONSUMER_POLL": "200ms",
		"CONSUMER_BLOCK":            "500ms",
		"PUBLISHER_REQUEST_TIMEOUT": "1500ms", "PUBLISHER_ATTEMPT_TIME": "3s", "PUBLISHER_MAX_CLAIM_AGE": "3s",
		"TRIMMER_RETENTION": "30s", "LOG_FORMAT": "json",
	} {
		s.env = append(s.env, "HONGBAO_"+name+"="+value)
	}
	if v.cfg, err = configs.Load("", s.env, nil); err != nil {
		return fmt.Errorf("the soak's own configuration: %w", err)
	}
	v.rdb = v.cfg.RedisClient()
	if v.store, err = store.New(store.Config{Redis: v.rdb, Space: v.cfg.Space(), Deployment: v.cfg.Deployment.ID}); err != nil {
		return err
	}
	s.say("redis %s, ledger %s at %s, kafka %s %s", v.redis, v.ledger, v.dsn, v.kafka.Version, v.kafka.Addr)
	return nil
}

// startLedger starts PostgreSQL, or MySQL where the tests of MariaDB run on it.
func (s *soak) startLedger(ctx context.Context) error {
	v := &s.servers
	if testkit.OnMySQL() {
		v.ledger, v.driver = mysql.Name, "mysql"
		server, err := testkit.StartMariaDB(ctx,
			testkit.MariaDBOptions{Settings: map[string]string{"innodb_doublewrite": "on"}})
		if err != nil {
			return err
		}
		name, err := server.CreateDatabase(ctx)
		v.dsn = server.DSN(name)
		return err
	}
	v.ledger, v.driver = postgres.Name, "pgx"
	server, err := testkit.StartPostgres(ctx,
		testkit.PostgresOptions{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	if err != nil {
		return err
	}
	name, err := server.CreateDatabase(ctx)
	v.dsn = server.DSN(name)
	return err
}

// startRedis starts one server, or a primary with replicas and sentinels.
func (s *soak) startRedis(ctx context.Context) (err error) {
	v := &s.servers
	if s.lose == "" {
		server, err := testkit.StartRedis(ctx, testkit.RedisOptions{})
		if err == nil {
			v.redis = server.Addr
			s.env = append(s.env, "HONGBAO_REDIS_ADDRS="+server.Addr)
		}
		return err
	}
	if v.set, err = testkit.StartRedisSentinels(ctx, testkit.RedisOptions{}); err != nil {
		return err
	}
	v.redis = v.set.Primary.Addr
	s.env = append(s.env, "HONGBAO_REDIS_MODE="+configs.Sentinel, "HONGBAO_REDIS_MASTER_NAME="+testkit.SentinelName,
		"HONGBAO_REDIS_ADDRS="+strings.Join(v.set.Addrs(), ","))
	return nil
}

// hongbao runs a command of the program, and returns its output.
func (s *soak) hongbao(ctx context.Context, args ...string) ([]byte, error) {
	return s.once(ctx, testkit.Environ(s.env...), args...)
}

func (s *soak) once(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("hongbao %v: %w: %s", args, err, stderr.Bytes())
	}
	return out, nil
}

// prepare initializes the deployment, and creates and loads the campaigns. Each shard has several campaigns with
// different limits. Each campaign gets five grabs per packet.
func (s *soak) prepare(ctx context.Context) error {
	if _, err := s.hongbao(ctx, "init"); err != nil {
		return err
	}
	grabs := s.seconds * s.rate
	packets := grabs / (grabsPerPacket * shardCount * perShard)
	now := time.Now().Truncate(time.Second)
	for shard := range shardCount {
		for n, id := 0, 0; n < perShard; id++ {
			c := hongbao.Campaign{
				ID: fmt.Sprintf("rain-%d-%d", shard, id), Name: "Soak", Kind: hongbao.KindRedPacket, Currency: "CNY",
				Total:   hongbao.Amount(packets) * 500,
				Packets: int64(packets), Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 5_000},
				From: now.Add(-time.Minute), To: now.Add(24 * time.Hour), TimeZone: "Asia/Shanghai", Sponsor: "acme",
				Durability: hongbao.Durability(s.lose),
			}
			if s.servers.store.Home(c.ID).Index() != shard {
				continue
			}
			if n == 1 { // a tenth of the packets is left over, so that there is a refund
				c.Limits = []hongbao.Limit{
					{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 3}, {By: "device", Per: hongbao.PerDay, Max: 5},
					{By: "channel", Per: hongbao.PerCampaign, Max: int64(packets) * 9 / 10},
				}
			}
			n++
			c = campaign.Complete(c)
			if err := s.create(ctx, &c); err != nil {
				return err
			}
		}
	}
	s.say("%d campaigns of %d packets on %d shards", len(s.campaigns), packets, shardCount)
	return nil
}

var planHash = regexp.MustCompile(`plan hash ([0-9a-f]{64}) `)

// create creates and loads a campaign, and keeps its plan hash.
func (s *soak) create(ctx context.Context, c *hongbao.Campaign) error {
	path := filepath.Join(s.dir, c.ID+".json")
	data, err := json.Marshal(c)
	if err = errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		return fmt.Errorf("write a specification: %w", err)
	}
	out, err := s.hongbao(ctx, "campaign", "create", path)
	if err != nil {
		return err
	}
	hash := planHash.FindSubmatch(out)
	if hash == nil {
		return fmt.Errorf("campaign create %s printed no plan hash: %s", c.ID, out)
	}
	r := newRaining(c)
	r.hash = string(hash[1])
	s.campaigns = append(s.campaigns, r)
	_, err = s.hongbao(ctx, "campaign", "load", c.ID)
	return err
}

// audit runs the program's audit, which waits until the deployment is quiet.
func (s *soak) audit(ctx context.Context) error {
	out, err := s.hongbao(ctx, "audit", "--wait", "90s", "--json")
	var report struct {
		Verdict string `json:"verdict"`
		Quiet   bool   `json:"quiet"`
		Total   struct {
			InFlight int64 `json:"in_flight"`
		} `json:"total"`
		Differences []json.RawMessage `json:"differences"`
	}
	if err2 := json.Unmarshal(out, &report); err2 != nil {
		return errors.Join(err, fmt.Errorf("read the audit's report: %w", err2))
	}
	s.outcome.audited(report.Verdict)
	s.say("audit: %s, quiet: %v, in flight: %d", report.Verdict, report.Quiet, report.Total.InFlight)
	for _, d := range report.Differences {
		s.say("  %s", d)
	}
	if !report.Quiet {
		err = errors.Join(err, errors.New("the workers did not finish everything in time"))
	}
	return err
}
