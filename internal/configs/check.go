package configs

import (
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/store"
)

func unsafeNames() []string {
	return append(append(postgres.Unsafe(), mysql.Unsafe()...), UnsafeRedisAppendOnly, UnsafeRedis, UnsafeRedisRunID, UnsafeRedisFullCoverage,
		UnsafeKafkaFounding, unsafeSASL, UnsafeRemoteToken, UnsafeBalanceListen, UnsafeServeListen, UnsafeControlListen, unsafeWebhook)
}

// UnsafeRedisAppendOnly allows a Redis without an append-only file, because a managed Redis may not offer one. A
// restart then loses all writes that no replica has. All other settings are still checked.
const UnsafeRedisAppendOnly = "redis_appendonly"

// UnsafeRedis allows a Redis whose settings may lose receipts, or that does not report its settings.
const UnsafeRedis = "redis_settings"

// UnsafeRedisRunID allows a Redis that hides its run_id. Then a restart or a failover does not freeze a shard, and
// Hongbao notices a loss only if some process has seen more events than Redis has.
const UnsafeRedisRunID = "redis_run_id"

// UnsafeRedisFullCoverage allows a cluster that refuses all commands as soon as one of its slots has no server.
const UnsafeRedisFullCoverage = "redis_full_coverage"

// UnsafeKafkaFounding allows sink kafka to publish although the topic's last record is from another deployment with the
// same id. That deployment may have published to the topic by mistake.
const UnsafeKafkaFounding = "kafka_founding"

// unsafeSASL allows a password to be sent in clear text.
const unsafeSASL = "sasl_plain_without_tls"

// UnsafeRemoteToken, UnsafeBalanceListen, UnsafeServeListen and UnsafeControlListen allow tokens and keys in clear
// text. They are for deployments that are protected otherwise: by a service mesh, or by a proxy on the same machine.
const (
	UnsafeRemoteToken   = "remote_token_without_tls"
	UnsafeBalanceListen = "balance_listen_without_tls"
	UnsafeServeListen   = "serve_listen_without_tls"
	UnsafeControlListen = "control_listen_without_tls"
)

// unsafeWebhook allows a webhook to post grants in clear text.
const unsafeWebhook = "webhook_without_tls"

// Protects returns what a check protects whose name unsafe.allow may have.
func Protects(name string) string {
	switch {
	case name == unsafeWebhook:
		return "users' data and coupon codes"
	case strings.HasSuffix(name, "_without_tls"):
		return "passwords, keys and users' data"
	case name == UnsafeKafkaFounding:
		return "the topic from another deployment"
	}
	return "money"
}

// check finds contradictions between values that are each valid.
func (l *loader) check(c *Config) {
	if l.p.fine("deployment.sinks") && len(c.Deployment.Sinks) == 0 {
		l.bad("deployment.sinks", "it is empty: name %s, %s or both, or no one is paid", SinkBalance, SinkKafka)
	}
	if err := store.CheckSpace(hongbao.Space{Prefix: c.Deployment.KeyPrefix, Shards: 1}); err != nil {
		l.bad("deployment.key_prefix", "%.80q: want 1 to 32 bytes without {, }, : or white space", c.Deployment.KeyPrefix)
	}
	for sink, name := range map[string]string{SinkBalance: "sinks.balance_", SinkKafka: "sinks.kafka_"} {
		l.checkAttempts(name+"max_attempts", c.sink(sink))
	}
	l.checkSinks(c)
	l.checkRedis(c)
	l.checkLedger(c)
	l.checkTimes(c)
	l.checkRemote(c)
	l.checkServe(c)
	l.checkControl(c)
	c.redisTLS = l.tls("redis", &c.Redis.TLS)
	if c.has(SinkKafka) {
		l.checkKafka(c)
	}
}

func (l *loader) checkAttempts(name string, s *Sink) {
	if l.p.fine(name) && s.MaxAttempts == 1 {
		l.bad(name, "it is 1: want 0, or at least 2, so that a grant that kills its workers makes no dead letters of others")
	}
}

func (c *Config) has(sink string) bool { return slices.Contains(c.Deployment.Sinks, sink) }

// bad adds a problem with the value of a knob, and with the place of that value.
func (l *loader) bad(name, format string, args ...any) {
	l.p.add(name, l.source(name), format, args...)
}

func (l *loader) source(name string) string {
	if s := l.sources[name]; s != "" {
		return s
	}
	return "default"
}

// text returns a knob's value as the user wrote it, or its default.
func (l *loader) text(name string) string {
	if s, ok := l.values[name]; ok {
		return s
	}
	return find(name).Default
}

func (l *loader) checkRedis(c *Config) {
	r := &c.Redis
	if l.p.fine("redis.addrs") && len(r.Addrs) == 0 {
		l.bad("redis.addrs", "it is empty: name at least one host:port")
	}
	if l.p.fine("redis.mode", "redis.addrs") && r.Mode == Standalone && len(r.Addrs) > 1 {
		l.bad("redis.addrs", "%d servers, but redis.mode is standalone: name one, or set redis.mode to sentinel or cluster",
			len(r.Addrs))
	}
	if l.p.fine("redis.mode", "redis.master_name") {
		switch {
		case r.Mode == Sentinel && r.MasterName == "":
			l.bad("redis.master_name", "it is empty, but redis.mode is sentinel: set the name of the primary at the sentinels")
		case r.Mode != Sentinel && r.MasterName != "":
			l.bad("redis.master_name", "it is for redis.mode sentinel only, but redis.mode is %s", r.Mode)
		}
	}
	if l.p.fine("redis.mode", "redis.db") && r.Mode == Cluster && r.DB != 0 {
		l.bad("redis.db", "it is %d, but a cluster has database 0 only", r.DB)
	}
	if l.p.fine("redis.mode") && r.Mode != Sentinel && (r.SentinelUsername != "" || r.SentinelPassword != "") {
		l.bad("redis.sentinel_password", "user or password of the sentinels are for redis.mode sentinel only, but redis.mode is "+
			"%s", r.Mode)
	}
	l.pair("redis.username", "redis.password", r.Username, r.Password)
	l.pair("redis.sentinel_username", "redis.sentinel_password", r.SentinelUsername, r.SentinelPassword)
}

// pair requires a password for a user, because the client library silently does not log in without one.
func (l *loader) pair(user, password, name string, secret Secret) {
	if l.p.fine(user, password) && name != "" && secret == "" {
		l.bad(user, "there is no password for it: set %s or %s", find(password).Env(), find(password).Env()+fileSuffix)
	}
}

func (l *loader) checkLedger(c *Config) {
	if !l.p.fine("ledger.driver", "ledger.dsn") {
		return
	}
	dsn, driver := c.Ledger.DSN.Reveal(), c.Ledger.Driver
	switch {
	case dsn == "" && driver == sqlite.Name: // a program that only grabs needs no ledger
	case driver == sqlite.Name && (isURL(dsn) || isMySQL(dsn) || hasPrefix(dsn, ":", "file:")):
		l.bad("ledger.dsn", "ledger.driver is sqlite, which wants a plain path; for another database set ledger.driver to "+
			"postgres or mysql")
	case driver == postgres.Name && !hasPrefix(dsn, "postgres://", "postgresql://") && !pairs(dsn):
		l.bad("ledger.dsn", "ledger.driver is postgres, which wants postgres://user@host:5432/database, or host=... "+
			"dbname=...")
	case driver == mysql.Name:
		if err := (mysql.Database{DSN: dsn}).Check(); err != nil {
			l.bad("ledger.dsn", "ledger.driver is mysql: %v", err)
		}
	}
}

// checkTimes checks pairs of durations of which one must be shorter than the other.
func (l *loader) checkTimes(c *Config) {
	third := c.Consumer.Lease / 3
	l.order("redis.read_timeout", c.Redis.ReadTimeout, "below a third of consumer.lease", third,
		"a lease is renewed every third of it, and one late answer would lose it", "consumer.lease")
	l.order("redis.read_timeout", c.Redis.ReadTimeout, "below producer.call_timeout", c.Producer.CallTimeout,
		"else a call whose answer is lost can't be repeated", "producer.call_timeout")
	l.order("producer.durability_timeout", c.Producer.DurabilityTimeout, "below producer.call_timeout",
		c.Producer.CallTimeout,
		"the call would end before this wait", "producer.call_timeout")
	l.order("ledger.lock_timeout", c.Ledger.LockTimeout, "below ledger.timeout", c.Ledger.Timeout,
		"the transaction would end before this wait", "ledger.timeout")
	l.order("consumer.backoff", c.Consumer.Backoff, "not above consumer.max_backoff", c.Consumer.MaxBackoff+1, "",
		"consumer.max_backoff")
	drain := c.Consumer.DrainTimeout
	if drain == 0 {
		drain = 1 << 62 // 0s means not to wait, so any ledger.timeout is fine
	}
	if c.has(SinkBalance) {
		l.order("ledger.timeout", c.Ledger.Timeout, "below consumer.handle_timeout", c.Consumer.HandleTimeout,
			"a slow transaction would count as no progress", "consumer.handle_timeout")
		l.order("ledger.timeout", c.Ledger.Timeout, "not above consumer.drain_timeout", drain+1,
			"a stopping worker would cut off a slow transaction; 0s is allowed, too", "consumer.drain_timeout")
	}
}

// order adds a problem unless low is below high. The bound high depends on the value of the knob named other. The check
// skips values that already have a problem. It does not mark its own values as wrong, because one value may contradict
// several others.
func (l *loader) order(name string, low time.Duration, want string, high time.Duration, why, other string) {
	if !l.p.fine(name, other) || low < high {
		return
	}
	if why != "" {
		why = ": " + why
	}
	l.p.contradict(name, l.source(name), "it is %s, want it %s, which is %s (%s)%s", knob.Span(low), want,
		l.text(other), l.source(other), why)
}

func (l *loader) checkKafka(c *Config) {
	c.kafkaTLS = l.tls("kafka", &c.Kafka.TLS)
	if l.p.fine("kafka.brokers") && len(c.Publisher.Brokers) == 0 {
		l.bad("kafka.brokers", "it is empty: name at least one host:port")
	}
	l.checkSASL(c)
	p := &c.Publisher
	l.order("publisher.attempt_time", p.AttemptTime, "not above publisher.max_claim_age", p.MaxClaimAge+1,
		"a claim must outlive the attempts under it", "publisher.max_claim_age")
	l.order("publisher.request_timeout", p.RequestTimeout, "not above publisher.attempt_time", p.AttemptTime+1,
		"else a batch whose answer is lost is never sent again", "publisher.attempt_time")
	l.order("publisher.max_claim_age", p.MaxClaimAge, "below consumer.lease", c.Consumer.Lease,
		"two workers could send under one claim", "consumer.lease")
	l.order("publisher.max_claim_age", p.MaxClaimAge, "not above a quarter of publisher.producer_expiration",
		p.ProducerExpiration/4+1,
		"the broker could forget a producer in mid-send", "publisher.producer_expiration")
	l.order("publisher.attempt_time", p.AttemptTime, "below consumer.handle_timeout", c.Consumer.HandleTimeout,
		"a slow broker would count as no progress", "consumer.handle_timeout")
}
