package configs

import (
	"crypto/tls"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/sink/publish"
	"github.com/hongbao-project/hongbao/internal/sink/remote"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/producer"
)

// The sinks, by the names of their consumer groups.
const (
	SinkBalance = "balance"
	SinkKafka   = "kafka"
)

// The modes of Redis.
const (
	Standalone = "standalone"
	Sentinel   = "sentinel"
	Cluster    = "cluster"
)

// The values of settlement.kind.
const (
	SettleLedger = "ledger"
	SettleRemote = "remote"
)

// Config is the merged and checked configuration, which Load returns. docs/configuration.md describes each field. Do
// not change a loaded Config: its methods rely on the checks. The stages' Configs in it have only their knobs; the
// methods return complete ones.
type Config struct {
	Deployment Deployment
	Redis      Redis
	Ledger     Ledger
	Settlement Settlement
	Remote     Remote
	Balance    Balance
	Serve      Serve
	Work       Work
	Ops        Ops
	Console    Console
	Publisher  publish.Config
	Kafka      Kafka
	Loader     load.Config
	Plans      campaign.PlansConfig
	Retirer    closing.RetirerConfig
	Producer   producer.Config
	Consumer   consumer.Config
	Trimmer    consumer.TrimmerConfig
	Sinks      Sinks
	Tracing    Tracing
	Log        Log
	Unsafe     Unsafe

	settings []Setting

	redisTLS, kafkaTLS, remoteTLS, balanceTLS, serveTLS, controlTLS *tls.Config
	kafkaSASL                                                       sasl.Mechanism
	watched                                                         []logSetter
}

// Deployment has the settings that all processes of a deployment must share. Only Sinks may change during the
// deployment's life.
type Deployment struct {
	// Name of the deployment. It identifies the data in Redis and the source of events in Kafka. Never change it.
	ID string `knob:"deployment.id,common" default:"hongbao" form:"name"`
	// Prefix of every key in Redis. Never change it.
	KeyPrefix string `knob:"deployment.key_prefix" default:"hb"`
	// Number of event streams in Redis; 16 to 64 on Redis Cluster. Never change it.
	Shards int `knob:"deployment.shards,common" default:"1" want:"1 to 1024"`
	// Consumer groups that must exist. Redis keeps events until each group has finished them.
	Sinks []string `knob:"deployment.sinks,common" default:"balance,kafka" want:"balance, kafka"`
}

// Sinks has the settings of each sink.
type Sinks struct {
	Balance Sink `knob:"sinks.balance"`
	Kafka   Sink `knob:"sinks.kafka"`
}

// Sink has the settings of the workers for one sink.
type Sink struct {
	// Maximum of grants per second that all workers together deliver to the sink; 0 for no limit. `hongbao sink limit`
	// changes it immediately, for all workers.
	GrantsPerSecond int `knob:"_grants_per_second,common" default:"0" want:"0 to 1_000_000_000 grants"`
	// Maximum of concurrent calls of the sink by one worker, at most one per shard; 0 for one per shard.
	MaxCalls int `knob:"_max_calls" default:"0" want:"0 to 1024 calls"`
	// Approximate number of grants in one call of this sink; 0 for consumer.batch_grants.
	BatchGrants int `knob:"_batch_grants" default:"0" want:"0 to 100_000 grants"`
	// Attempts before a grant becomes a dead letter of this sink: at least 2, or 0 for consumer.max_attempts.
	MaxAttempts int64 `knob:"_max_attempts" default:"0" want:"0 to 1000"`
}

// Redis has the settings of the connections to Redis.
type Redis struct {
	// Kind of the servers in redis.addrs.
	Mode string `knob:"redis.mode,common" default:"standalone" want:"standalone, sentinel, cluster"`
	// Address of the server, of the sentinels, or of some nodes of the cluster.
	Addrs []string `knob:"redis.addrs,common" default:"127.0.0.1:6379" form:"address"`
	// Name of the primary at the sentinels.
	MasterName string `knob:"redis.master_name"`
	// ACL user; empty for the default user.
	Username string `knob:"redis.username,common"`
	// Password of the user.
	Password Secret `knob:"redis.password,common" secret:"always"`
	// ACL user of the sentinels.
	SentinelUsername string `knob:"redis.sentinel_username"`
	// Password for the sentinels.
	SentinelPassword Secret `knob:"redis.sentinel_password" secret:"always"`
	// Number of the database; a cluster has only database 0.
	DB  int `knob:"redis.db" default:"0" want:"0 to 1023"`
	TLS TLS `knob:"redis.tls"`
	// Maximum of connections to each server. Blocking reads use one more connection per shard and sink.
	PoolSize int `knob:"redis.pool_size" default:"50" want:"1 to 10_000 connections"`
	// How long to wait for a free connection.
	PoolTimeout time.Duration `knob:"redis.pool_timeout" default:"4s" want:"1ms to 1m"`
	// Time limit for one attempt to connect.
	DialTimeout time.Duration `knob:"redis.dial_timeout" default:"2s" want:"10ms to 1m"`
	// How long to wait for a reply. Blocking reads wait consumer.block longer.
	ReadTimeout time.Duration `knob:"redis.read_timeout" default:"3s" want:"10ms to 1m"`
	// Time limit for sending a command.
	WriteTimeout time.Duration `knob:"redis.write_timeout" default:"3s" want:"10ms to 1m"`
	// How often a command is repeated if its reply was lost. Every script is idempotent: a repeat returns the same reply.
	Retries int `knob:"redis.retries" default:"2" want:"0 to 10"`
}

// TLS has the settings of TLS for a connection.
type TLS struct {
	// Connect with TLS 1.2 or newer.
	On       bool `knob:",common" default:"false"`
	TLSFiles `knob:""`
}

// TLSFiles are the files of a TLS connection. Empty fields mean the system's CAs, no client certificate, and the name
// of the dialled host.
type TLSFiles struct {
	// File with the certificates of the authorities that may sign the server's certificate, in PEM; empty for the
	// system's.
	CA string `knob:"_ca"`
	// File with the client's certificate, in PEM.
	Cert string `knob:"_cert"`
	// File with the key of the client's certificate, in PEM. Other users must not be able to read it, as with the file of a
	// secret.
	Key string `knob:"_key"`
	// Name that the server's certificate must have; empty for the host that was dialled.
	ServerName string `knob:"_server_name"`
}

// Ledger has the settings of the connection to the ledger's database.
type Ledger struct {
	ledger.Config
	// Path of the SQLite file, or connection string: postgres://user@host:5432/database for PostgreSQL,
	// user@tcp(host:3306)/database?tls=true for MySQL. There is no default: every process that uses the ledger needs it.
	// With a password it is a secret.
	DSN Secret `knob:"ledger.dsn,common" secret:"password"`
}

// Settlement says where grants are settled.
type Settlement struct {
	// Where sink balance settles grants. ledger: in the ledger's database. remote: at a remote balance system over HTTP,
	// and the ledger records each credit. Never change it while grants are unsettled.
	Kind string `knob:"settlement.kind,common" default:"ledger" want:"ledger, remote"`
}

// Remote has the settings of a remote balance system.
type Remote struct {
	remote.Config
	// Bearer token for the remote.
	Token Secret   `knob:"remote.token,common" secret:"always"`
	TLS   TLSFiles `knob:"remote.tls"`
}

// Work has the settings of `hongbao work`.
type Work struct {
	// Address of /livez, /readyz and /metrics, for probes and monitoring, such as 127.0.0.1:8083; empty for no such
	// listener.
	//
	// It is empty by default since several workers may run on one machine.
	OpsListen string `knob:"work.ops_listen,common" form:"ops"`
	// After Redis has lost grants, a process that has reported some of them to users may not answer. The restore then
	// withholds extra packets of each campaign on the shard, as many as the shard granted in this time. With 0s a person
	// must decide about such a loss.
	//
	// The shard then opens automatically; `hongbao hole` shows and grants the withheld packets.
	RestoreMargin time.Duration `knob:"work.restore_margin" default:"2s" want:"0s to 5m"`
}

// Ops has the settings that the ops listeners of serve, work and balance share.
type Ops struct {
	// Serve /debug/pprof on the ops listeners too. Anyone who reaches it can read the memory of the process.
	Pprof bool `knob:"ops.pprof" default:"false"`
	// How long a reply of Redis about lag and state is cached, however often metrics are scraped.
	Poll time.Duration `knob:"ops.poll" default:"5s" want:"100ms to 5m"`
	// How long to wait for a reply of Redis about lag and state.
	PollTimeout time.Duration `knob:"ops.poll_timeout" default:"5s" want:"100ms to 1m"`
	// Maximum number of campaigns that are named in a metric.
	Campaigns int `knob:"ops.campaigns" default:"20" want:"0 to 1000 campaigns"`
}

// Kafka has the settings for logging in to Kafka; the other settings are in publish.Config.
type Kafka struct {
	TLS TLS `knob:"kafka.tls"`
	// How to log in. plain needs TLS.
	SASLMechanism string `knob:"kafka.sasl_mechanism,common" default:"none" want:"none,plain,scram-sha-256,scram-sha-512"`
	// User to log in.
	SASLUsername string `knob:"kafka.sasl_username,common"`
	// Password to log in.
	SASLPassword Secret `knob:"kafka.sasl_password,common" secret:"always"`
}

// Tracing says which grabs are traced, and where their spans are sent.
type Tracing struct {
	// Collector that receives spans by OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is appended to it. Empty:
	// nothing is traced.
	Endpoint string `knob:"tracing.endpoint,common" form:"url"`
	// Trace one of this many requests, unless the caller's traceparent decides; 0 for none.
	OneIn int `knob:"tracing.one_in,common" default:"1000" want:"0 to 1_000_000_000 requests"`
	// Maximum of requests that one server selects for tracing. The same maximum applies separately to requests that
	// callers select.
	PerSecond int `knob:"tracing.per_second" default:"100" want:"1 to 100_000 requests a second"`
}

// Log has the knobs of the log.
type Log struct {
	// Lowest level that is logged. Less important lines are left out.
	Level string `knob:"log.level,common" default:"info" want:"debug, info, warn, error"`
	// auto: console in a terminal, else json. json has one object a line.
	Format string `knob:"log.format" default:"auto" want:"auto, json, console"`
}

// Unsafe lists the checks that only warn.
type Unsafe struct {
	// Checks that only warn. A process refuses to start if any other check fails. The first six names are settings of
	// the ledger's database.
	Allow []string `knob:"unsafe.allow"`
}

// Setting is the value of one knob.
type Setting struct {
	// Name is the knob's name. Value is its text, *** for a secret that is set. Source is "default" or the place of
	// the setting.
	Name, Value, Source string
}

// Settings returns every knob in the order of the reference, for a person to read. It does not contain secrets.
func (c *Config) Settings() []Setting { return append([]Setting(nil), c.settings...) }

// Secret is a text that prints as *** and marshals as ***, so that it does not end up in a log.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
