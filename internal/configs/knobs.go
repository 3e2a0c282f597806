package configs

import (
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/closing"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/publish"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// knob is one row of the table. What its value looks like follows from the type of its field.
type knob struct {
	name  string
	field func(*Config) any // *string, *int, *int64, *time.Duration, *bool, *[]string or *Secret
	def   string            // as one would write it; a list with commas
	unit  string            // of a number
	// low and high bound a number, or a duration in ns; both included.
	low, high int64
	choices   []string // of a text, or of each item of a list
	// check tells what is wrong with a text, or with an item of a list; "" if nothing.
	check  func(string) string
	secret secrecy
	doc    string // sentences; what happens at the bounds is said by check
}

// secrecy says where a value may stand.
type secrecy int

const (
	public       secrecy = iota
	alwaysSecret         // only in the environment or a file of its own
	maybeSecret          // there too if it holds a password
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
	day    = 24 * hour
)

// sections in the order of the reference, with what they are about.
var sections = []struct{ name, doc string }{
	{"deployment", "What all processes of a deployment must agree on."},
	{"redis", "How to reach Redis."},
	{"ledger", "How to reach the ledger's database."},
	{"settlement", "Where grants are settled."},
	{"remote", "A remote balance system, and what it is able to do. Used if settlement.kind is remote; " +
		"docs/remote-balance.md tells more."},
	{"balance", "The server `hongbao balance`. Used by that command only."},
	{"kafka", "How to reach Kafka, and the topic. Not looked at if kafka is not among deployment.sinks."},
	{"publisher", "How grants are put into the topic."},
	{"campaign", "Loading campaigns, holding their plans, and letting them go."},
	{"producer", "Deciding grabs."},
	{"consumer", "Bringing events to the sinks; the same for each sink."},
	{"trimmer", "Deleting finished events from the streams."},
	{"log", "What a process tells."},
	{"unsafe", "Checks that only warn. Each one switched off can cost money."},
}

var knobs = join(deploymentKnobs, redisKnobs, ledgerKnobs, settlementKnobs, remoteKnobs, balanceKnobs, kafkaKnobs,
	publisherKnobs, campaignKnobs, producerKnobs, consumerKnobs,
	trimmerKnobs, otherKnobs)

func join(tables ...[]knob) []knob {
	var all []knob
	for _, t := range tables {
		all = append(all, t...)
	}
	return all
}

func (k *knob) section() string {
	s, _, _ := strings.Cut(k.name, ".")
	return s
}

// env is the knob's name in the environment.
func (k *knob) env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_")) }

// kind is what the reference and the usage of the flags call the type.
func (k *knob) kind() string {
	switch k.field(&Config{}).(type) {
	case *int, *int64:
		return "integer"
	case *time.Duration:
		return "duration"
	case *bool:
		return "bool"
	case *[]string:
		return "list"
	case *Secret:
		return "secret"
	}
	if k.choices != nil {
		return "choice"
	}
	return "text"
}

var deploymentKnobs = []knob{
	{name: "deployment.id", field: func(c *Config) any { return &c.Deployment.ID }, def: "hongbao", check: plainName,
		doc: "Name of the deployment: it marks the data in Redis, and the source of events in Kafka. Never change it."},
	{name: "deployment.key_prefix", field: func(c *Config) any { return &c.Deployment.KeyPrefix }, def: "hb",
		check: keyPrefix,
		doc:   "What every key in Redis begins with. Never change it."},
	{name: "deployment.shards", field: func(c *Config) any { return &c.Deployment.Shards }, def: "1", low: 1,
		high: shards.MaxShards,
		doc:  "Streams of events in Redis; 16 to 64 on Redis Cluster. Never change it."},
	{name: "deployment.sinks", field: func(c *Config) any { return &c.Deployment.Sinks }, def: "balance,kafka",
		choices: []string{SinkBalance, SinkKafka},
		doc:     "Consumer groups that must exist: events are kept until each of them has finished."},
}

var redisKnobs = []knob{
	{name: "redis.mode", field: func(c *Config) any { return &c.Redis.Mode }, def: Standalone,
		choices: []string{Standalone, Sentinel, Cluster},
		doc:     "What the addresses are."},
	{name: "redis.addrs", field: func(c *Config) any { return &c.Redis.Addrs }, def: "127.0.0.1:6379", check: hostPort,
		doc: "The server; or the sentinels; or some nodes of the cluster."},
	{name: "redis.master_name", field: func(c *Config) any { return &c.Redis.MasterName },
		doc: "What the sentinels call the primary."},
	{name: "redis.username", field: func(c *Config) any { return &c.Redis.Username }, doc: "ACL user; empty for the " +
		"default user."},
	{name: "redis.password", field: func(c *Config) any { return &c.Redis.Password }, secret: alwaysSecret,
		doc: "Password of the user."},
	{name: "redis.sentinel_username", field: func(c *Config) any { return &c.Redis.SentinelUsername },
		doc: "ACL user of the sentinels."},
	{name: "redis.sentinel_password", field: func(c *Config) any { return &c.Redis.SentinelPassword },
		secret: alwaysSecret,
		doc:    "Password for the sentinels."},
	{name: "redis.db", field: func(c *Config) any { return &c.Redis.DB }, def: "0", high: 1023,
		doc: "Number of the database; a cluster has 0 only."},
	{name: "redis.tls", field: func(c *Config) any { return &c.Redis.TLS.On }, def: "false", doc: "Connect with TLS 1.2 " +
		"or newer."},
	{name: "redis.tls_ca", field: func(c *Config) any { return &c.Redis.TLS.CA },
		doc: "File with the certificates of those who may sign the server's, in PEM; empty for the system's."},
	{name: "redis.tls_cert", field: func(c *Config) any { return &c.Redis.TLS.Cert }, doc: "File with the client's " +
		"certificate, in PEM."},
	{name: "redis.tls_key", field: func(c *Config) any { return &c.Redis.TLS.Key },
		doc: "File with the key of the client's certificate, in PEM; closed to others as a secret's file is."},
	{name: "redis.tls_server_name", field: func(c *Config) any { return &c.Redis.TLS.ServerName },
		doc: "Name that the server's certificate must have; empty for the host that was dialled."},
	{name: "redis.pool_size", field: func(c *Config) any { return &c.Redis.PoolSize }, def: "50", unit: "connections",
		low: 1, high: 10_000,
		doc: "Connections to each server. Those for blocking reads come on top, one a shard and sink."},
	{name: "redis.pool_timeout", field: func(c *Config) any { return &c.Redis.PoolTimeout }, def: "4s", low: ms,
		high: minute,
		doc:  "Wait for a free connection."},
	{name: "redis.dial_timeout", field: func(c *Config) any { return &c.Redis.DialTimeout }, def: "2s", low: 10 * ms,
		high: minute,
		doc:  "One attempt to connect."},
	{name: "redis.read_timeout", field: func(c *Config) any { return &c.Redis.ReadTimeout }, def: "3s", low: 10 * ms,
		high: minute,
		doc:  "Wait for an answer. Blocking reads wait consumer.block longer."},
	{name: "redis.write_timeout", field: func(c *Config) any { return &c.Redis.WriteTimeout }, def: "3s", low: 10 * ms,
		high: minute,
		doc:  "Sending a command."},
	{name: "redis.max_idle_age", field: func(c *Config) any { return &c.Redis.MaxIdleAge }, def: "5m", low: second,
		high: day,
		doc:  "Unused connections are closed after this."},
	{name: "redis.retries", field: func(c *Config) any { return &c.Redis.Retries }, def: "2", high: 10,
		doc: "Repeats of a command whose answer was lost. Every script gives the same answer when it runs twice."},
}

var ledgerKnobs = []knob{
	{name: "ledger.driver", field: func(c *Config) any { return &c.Ledger.Driver }, def: string(ledger.SQLite),
		choices: []string{string(ledger.PostgreSQL), string(ledger.MySQL), string(ledger.SQLite)},
		doc:     "Kind of database; mysql is MariaDB too. SQLite serves one machine; several machines need one of the others."},
	{name: "ledger.dsn", field: func(c *Config) any { return &c.Ledger.DSN }, secret: maybeSecret,
		doc: "Has no default: whatever pays or reads the ledger needs it. Path of the SQLite file, or connection string: " +
			"postgres://user@host:5432/database for PostgreSQL, user@tcp(host:3306)/database?tls=true for MySQL. With a " +
			"password it is a secret."},
	{name: "ledger.conns", field: func(c *Config) any { return &c.Ledger.Conns }, def: "10", unit: "connections", low: 1,
		high: 1_000,
		doc:  "Connections of one process. On SQLite they are readers, the one writer comes on top."},
	{name: "ledger.connect_timeout", field: func(c *Config) any { return &c.Ledger.ConnectTimeout }, def: "5s",
		low: 10 * ms, high: minute,
		doc: "One attempt to connect."},
	{name: "ledger.lock_timeout", field: func(c *Config) any { return &c.Ledger.LockTimeout }, def: "3s", low: ms,
		high: 10 * minute,
		doc:  "Wait for a lock of another transaction. MySQL rounds it up to whole seconds."},
	{name: "ledger.timeout", field: func(c *Config) any { return &c.Ledger.Timeout }, def: "10s", low: 10 * ms, high: hour,
		doc: "One transaction with all its waits."},
	{name: "ledger.retries", field: func(c *Config) any { return &c.Ledger.Retries }, def: "5", low: 1, high: 100,
		doc: "Repeats of a transaction that lost a deadlock or a lock."},
}

var kafkaKnobs = []knob{
	{name: "kafka.brokers", field: func(c *Config) any { return &c.Kafka.Brokers }, def: "127.0.0.1:9092", check: hostPort,
		doc: "Some brokers of the cluster; the rest is discovered."},
	{name: "kafka.client_id", field: func(c *Config) any { return &c.Kafka.ClientID }, def: "hongbao", check: plainName,
		doc: "What the brokers' logs and quotas call this process."},
	{name: "kafka.topic", field: func(c *Config) any { return &c.Kafka.Topic }, def: "hongbao.grants", check: topicName,
		doc: "Topic that takes the grants."},
	{name: "kafka.partitions", field: func(c *Config) any { return &c.Kafka.Partitions }, def: "1", low: 1,
		high: publish.MaxPartitions,
		doc:  "Partitions of the topic. A shard's partition is the shard modulo this, so never change it."},
	{name: "kafka.create_topic", field: func(c *Config) any { return &c.Kafka.CreateTopic }, def: "false",
		doc: "Create the topic if it is missing."},
	{name: "kafka.replication_factor", field: func(c *Config) any { return &c.Kafka.ReplicationFactor }, def: "3", low: 1,
		high: 100,
		doc:  "Copies of each partition of a topic that is created."},
	{name: "kafka.tls", field: func(c *Config) any { return &c.Kafka.TLS.On }, def: "false", doc: "Connect with TLS 1.2 " +
		"or newer."},
	{name: "kafka.tls_ca", field: func(c *Config) any { return &c.Kafka.TLS.CA },
		doc: "File with the certificates of those who may sign the brokers', in PEM; empty for the system's."},
	{name: "kafka.tls_cert", field: func(c *Config) any { return &c.Kafka.TLS.Cert }, doc: "File with the client's " +
		"certificate, in PEM."},
	{name: "kafka.tls_key", field: func(c *Config) any { return &c.Kafka.TLS.Key },
		doc: "File with the key of the client's certificate, in PEM; closed to others as a secret's file is."},
	{name: "kafka.tls_server_name", field: func(c *Config) any { return &c.Kafka.TLS.ServerName },
		doc: "Name that every broker's certificate must have; empty for the host that was dialled."},
	{name: "kafka.sasl_mechanism", field: func(c *Config) any { return &c.Kafka.SASLMechanism }, def: saslNone,
		choices: []string{saslNone, saslPlain, saslScram256, saslScram512}, doc: "How to log in. plain needs TLS."},
	{name: "kafka.sasl_username", field: func(c *Config) any { return &c.Kafka.SASLUsername }, doc: "Who logs in."},
	{name: "kafka.sasl_password", field: func(c *Config) any { return &c.Kafka.SASLPassword }, secret: alwaysSecret,
		doc: "Password to log in."},
}

var publisherKnobs = []knob{
	{name: "publisher.batch_grants", field: func(c *Config) any { return &c.Publisher.BatchGrants }, def: "2000",
		unit: "grants", low: 1,
		high: publish.MaxBatchGrants, doc: "Grants in one batch at most."},
	{name: "publisher.batch_bytes", field: func(c *Config) any { return &c.Publisher.BatchBytes }, def: "1000000",
		unit: "bytes",
		low:  publish.MinBatchBytes, high: publish.MaxBatchBytes,
		doc: "Size of one batch at most; not above the topic's max.message.bytes."},
	{name: "publisher.dial_timeout", field: func(c *Config) any { return &c.Publisher.DialTimeout }, def: "5s",
		low: 10 * ms, high: minute,
		doc: "One connect with its handshakes."},
	{name: "publisher.request_timeout", field: func(c *Config) any { return &c.Publisher.RequestTimeout }, def: "5s",
		low: 100 * ms, high: 5 * minute,
		doc: "One request. The broker has half of it to replicate a batch."},
	{name: "publisher.idle_timeout", field: func(c *Config) any { return &c.Publisher.IdleTimeout }, def: "5m",
		low: second, high: 9 * minute,
		doc: "Unused connections are closed after this; below the brokers' connections.max.idle.ms."},
	{name: "publisher.metadata_ttl", field: func(c *Config) any { return &c.Publisher.MetadataTTL }, def: "5s",
		low: 100 * ms, high: 5 * minute,
		doc: "How long a moved leader can go unnoticed."},
	{name: "publisher.attempt_time", field: func(c *Config) any { return &c.Publisher.AttemptTime }, def: "15s",
		low: 100 * ms, high: 10 * minute,
		doc: "How long one batch is sent again and again before it counts as an outage."},
	{name: "publisher.max_claim_age", field: func(c *Config) any { return &c.Publisher.MaxClaimAge }, def: "20s",
		low: 100 * ms, high: 10 * minute,
		doc: "How old a claim may be when its batch is sent."},
	{name: "publisher.producer_expiration", field: func(c *Config) any { return &c.Publisher.ProducerExpiration },
		def: "24h", low: minute, high: 365 * day,
		doc: "The brokers' producer.id.expiration.ms, or less. Stored batches are sent again blindly for half of it."},
	{name: "publisher.fetch_bytes", field: func(c *Config) any { return &c.Publisher.FetchBytes }, def: "8388608",
		unit: "bytes", low: 64 << 10, high: 1 << 30,
		doc: "One answer at most when the topic is read."},
}

var campaignKnobs = []knob{
	{name: "campaign.load_chunk", field: func(c *Config) any { return &c.Campaign.LoadChunk }, def: "1000",
		unit: "packets", low: 1, high: campaign.MaxChunk,
		doc: "Packets that one call loads into Redis, which is busy meanwhile."},
	{name: "campaign.load_patience", field: func(c *Config) any { return &c.Campaign.LoadPatience }, def: "30s",
		high: hour,
		doc:  "How long one call is repeated while Redis is out of reach; 0s for no repeat."},
	{name: "campaign.cached_packets", field: func(c *Config) any { return &c.Campaign.CachedPackets }, def: "20000000",
		unit: "packets",
		low:  hongbao.MaxPackets, high: 1e10, doc: "Packets of all plans that a settler holds in memory, 8 bytes each."},
	{name: "campaign.grace", field: func(c *Config) any { return &c.Campaign.Grace }, def: "24h",
		high: int64(closing.MaxGrace),
		doc:  "How long a refunded campaign stays in Redis. Then its receipts are answered from the ledger."},
}

var producerKnobs = []knob{
	{name: "producer.max_backlog", field: func(c *Config) any { return &c.Producer.MaxBacklog }, def: "5000000",
		unit: "events", low: 1, high: 1e9,
		doc: "Events of a shard that its slowest sink may not have finished, before grabs are answered busy."},
	{name: "producer.in_flight", field: func(c *Config) any { return &c.Producer.InFlight }, def: "2", unit: "calls",
		low: 1, high: 16,
		doc: "Calls of one campaign under way at once; two is fastest."},
	{name: "producer.max_waiting", field: func(c *Config) any { return &c.Producer.MaxWaiting }, def: "100000",
		unit: "grabs", low: 1, high: 1e6,
		doc: "Grabs of one campaign that may wait for a call."},
	{name: "producer.call_timeout", field: func(c *Config) any { return &c.Producer.CallTimeout }, def: "5s", low: ms,
		high: minute,
		doc:  "One call with all its repeats."},
	{name: "producer.undecided_timeout", field: func(c *Config) any { return &c.Producer.UndecidedTimeout }, def: "1s",
		high: minute,
		doc:  "How long one grab is repeated while its outcome is undecided; 0s for not at all."},
	{name: "producer.durability_timeout", field: func(c *Config) any { return &c.Producer.DurabilityTimeout }, def: "1s",
		low: ms, high: minute,
		doc: "Wait for a replica, or for the disk, in campaigns that ask for it."},
}

var consumerKnobs = []knob{
	{name: "consumer.batch_grants", field: func(c *Config) any { return &c.Consumer.BatchGrants }, def: "2000",
		unit: "grants", low: 1, high: 100_000,
		doc: "About how many grants a sink gets at once."},
	{name: "consumer.max_entries", field: func(c *Config) any { return &c.Consumer.MaxEntries }, def: "1000",
		unit: "entries", low: 1, high: 10_000,
		doc: "Entries that are read or taken at once at most."},
	{name: "consumer.block", field: func(c *Config) any { return &c.Consumer.Block }, def: "1s", low: 10 * ms,
		high: 5 * second,
		doc:  "How long a read waits for new entries."},
	{name: "consumer.poll", field: func(c *Config) any { return &c.Consumer.Poll }, def: "500ms", low: 10 * ms,
		high: minute,
		doc:  "How often parked and abandoned entries are looked for."},
	{name: "consumer.lease", field: func(c *Config) any { return &c.Consumer.Lease }, def: "30s", low: 100 * ms,
		high: hour,
		doc:  "How long an entry stays a worker's own without renewal; it is renewed every third of this."},
	{name: "consumer.handle_timeout", field: func(c *Config) any { return &c.Consumer.HandleTimeout }, def: "2m",
		low: 10 * ms, high: hour,
		doc: "One call of a sink, before it counts as making no progress."},
	{name: "consumer.drain_timeout", field: func(c *Config) any { return &c.Consumer.DrainTimeout }, def: "20s",
		high: hour,
		doc: "How long a worker goes on with what is in flight when it is told to stop; 0s to hand it back at once. Keep it " +
			"below what the service manager grants."},
	{name: "consumer.max_attempts", field: func(c *Config) any { return &c.Consumer.MaxAttempts }, def: "12", low: 2,
		high: 1_000,
		doc: "Attempts before a grant becomes a dead letter. Outages of a whole sink take none, nor does waiting for " +
			"another worker's claim."},
	{name: "consumer.backoff", field: func(c *Config) any { return &c.Consumer.Backoff }, def: "1s", low: ms, high: day,
		doc: "Wait after the first failed attempt; it doubles with each further one."},
	{name: "consumer.max_backoff", field: func(c *Config) any { return &c.Consumer.MaxBackoff }, def: "10m", low: ms,
		high: day,
		doc:  "The longest wait between two attempts."},
}

var trimmerKnobs = []knob{
	{name: "trimmer.every", field: func(c *Config) any { return &c.Trimmer.Every }, def: "1s", low: 10 * ms, high: hour,
		doc: "Pause between two rounds."},
	{name: "trimmer.retention", field: func(c *Config) any { return &c.Trimmer.Retention }, def: "10m", high: 30 * day,
		doc: "How long finished events are kept in Redis."},
	{name: "trimmer.max_events", field: func(c *Config) any { return &c.Trimmer.MaxEvents }, def: "5000000",
		unit: "events", high: 1e9,
		doc: "Finished events of a shard that are kept at most."},
	{name: "trimmer.forget_after", field: func(c *Config) any { return &c.Trimmer.ForgetAfter }, def: "10m", low: second,
		high: 30 * day,
		doc:  "How long a consumer with nothing pending is idle before it is removed."},
}

var otherKnobs = []knob{
	{name: "log.level", field: func(c *Config) any { return &c.Log.Level }, def: "info",
		choices: []string{"debug", "info", "warn", "error"},
		doc:     "What is less important is left out."},
	{name: "log.format", field: func(c *Config) any { return &c.Log.Format }, def: logAuto,
		choices: []string{logAuto, logJSON, logConsole},
		doc:     "auto: console in a terminal, else json. json has one object a line."},
	{name: "unsafe.allow", field: func(c *Config) any { return &c.Unsafe.Allow }, choices: unsafeNames(),
		doc: "Checks that shall warn instead of refusing. The first six are settings of the ledger's database."},
}
