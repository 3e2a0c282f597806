package configs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/producer"
)

// The sinks that every deployment may have, by the names of their consumer groups. Others are webhooks, or sinks of the
// user's own.
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
	Control    Control
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
	Webhooks   map[string]*Webhook `json:",omitempty"`
	Own        map[string]*Own     `json:",omitempty"`
	Tracing    Tracing
	Log        Log
	Unsafe     Unsafe
	Seams      Seams `json:"-"`
	// Handlers open the sinks of the user's own that this program delivers to, by name. Load leaves it nil.
	Handlers map[string]OpenHandler `json:"-"`

	settings []Setting

	redisTLS, kafkaTLS, remoteTLS, balanceTLS, serveTLS, controlTLS *tls.Config
	webhookTLS                                                      map[string]*tls.Config
	kafkaSASL                                                       sasl.Mechanism
	watched                                                         []logSetter
	pairs                                                           map[string]keyPair
	authorities                                                     map[string]*watched[x509.CertPool]
}

// OpenHandler opens the handler of a sink.
type OpenHandler func(ctx context.Context) (hongbao.Handler, error)

// Seams are the places where a simulation stands between this process and its servers. Load leaves them zero: then the
// process uses the machine's network, its own id, and the ledger without a gate.
type Seams struct {
	// Dial opens the connections to Redis, Kafka and webhooks, and Listen the listeners of `hongbao serve` and
	// `hongbao control`.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(ctx context.Context, address string) (net.Listener, error)
	// Gate is asked around each transaction of the ledger on SQLite.
	Gate sqlite.Gate
	// Process is the part of a worker's name that distinguishes the processes of a machine.
	Process string
	// Log gets the log of a long-lived process instead of standard error.
	Log io.Writer
}

// Deployment has the settings that all processes of a deployment must share. Only Sinks may change during the
// deployment's life.
type Deployment struct {
	// Name of the deployment. It identifies the deployment's data in Redis, and its events in Kafka. Never change this
	// name.
	ID string `knob:"deployment.id,common" default:"hongbao" form:"name"`
	// Prefix of every key in Redis. Never change this prefix.
	KeyPrefix string `knob:"deployment.key_prefix" default:"hb"`
	// Number of shards; each has its own stream of events in Redis. On Redis Cluster use 16 to 64. Never change this
	// number.
	Shards int `knob:"deployment.shards,common" default:"1" want:"1 to 1024"`
	// The sinks of this deployment: balance, kafka, and the names of webhooks and of sinks of your own. Each has a
	// consumer group in Redis. Redis keeps an event until each sink has finished it.
	Sinks []string `knob:"deployment.sinks,common" default:"balance,kafka" form:"sink"`
}

// Sinks has the settings of each sink.
type Sinks struct {
	Balance Sink `knob:"sinks.balance_"`
	Kafka   Sink `knob:"sinks.kafka_"`
}

// Sink has the settings of the workers for one sink.
type Sink struct {
	// The most grants per second that all workers together deliver to the sink; 0 for no limit. `hongbao sink limit`
	// overrides this knob in all workers, within about two seconds.
	GrantsPerSecond int `knob:"grants_per_second,common" default:"0" want:"0 to 1_000_000_000 grants"`
	// The most concurrent calls of the sink by one worker; 0 for one call per shard. A shard never has two calls at once.
	MaxCalls int `knob:"max_calls" default:"0" want:"0 to 1024 calls"`
	// Approximate number of grants in one call of this sink; 0 for the value of consumer.batch_grants.
	BatchGrants int `knob:"batch_grants" default:"0" want:"0 to 100_000 grants"`
	// Number of failed attempts after which a grant becomes a dead letter of this sink: at least 2, or 0 for the value of
	// consumer.max_attempts.
	MaxAttempts int64 `knob:"max_attempts" default:"0" want:"0 to 1000"`
}

// Webhook has the settings of a sink that posts each grant to a URL. Its name is the star in the names of its knobs.
type Webhook struct {
	webhook.Config
	// Secret that signs the requests, as the receiver has it: whsec_ and 24 to 64 bytes in base64.
	Secret Secret `knob:"webhook.*.secret,common" secret:"always"`
	// Secret that signs them, too, while the receiver changes from it to the other one; empty for none.
	PreviousSecret Secret   `knob:"webhook.*.previous_secret" secret:"always"`
	TLS            TLSFiles `knob:"webhook.*.tls"`
	// Whether grabs are refused as busy while this sink is as far behind as producer.max_backlog allows. Without it, a
	// dead receiver stops no campaign, and Redis keeps the events that wait for it.
	BlocksGrabs bool `knob:"webhook.*.blocks_grabs" default:"false"`
	Sink        `knob:"webhook.*."`
}

// Own has the settings of a sink to which a program of the user delivers. Its name is the star in the names of its
// knobs.
type Own struct {
	// The program that delivers to this sink, and who runs it. Hongbao's messages name it to operators.
	Program string `knob:"own.*.program,common"`
	// Whether grabs are refused as busy while this sink is as far behind as producer.max_backlog allows. Without it, a
	// dead program stops no campaign, and Redis keeps the events that wait for it.
	BlocksGrabs bool `knob:"own.*.blocks_grabs" default:"false"`
	Sink        `knob:"own.*."`
}

// Redis has the settings of the connections to Redis.
type Redis struct {
	// Kind of the servers in redis.addrs: one server, sentinels, or a cluster.
	Mode string `knob:"redis.mode,common" default:"standalone" want:"standalone, sentinel, cluster"`
	// Addresses (host:port) of the server, of the sentinels, or of some nodes of the cluster.
	Addrs []string `knob:"redis.addrs,common" default:"127.0.0.1:6379" form:"address"`
	// Name that the sentinels use for the primary. Only for redis.mode sentinel.
	MasterName string `knob:"redis.master_name"`
	// ACL user in Redis; empty for the default user.
	Username string `knob:"redis.username,common"`
	// Password of the ACL user in Redis.
	Password Secret `knob:"redis.password,common" secret:"always"`
	// ACL user at the sentinels; empty for the default user.
	SentinelUsername string `knob:"redis.sentinel_username"`
	// Password of the ACL user at the sentinels.
	SentinelPassword Secret `knob:"redis.sentinel_password" secret:"always"`
	// Number of the database in Redis. A cluster has only database 0.
	DB  int `knob:"redis.db" default:"0" want:"0 to 1023"`
	TLS TLS `knob:"redis.tls"`
	// The most connections of one process to each server. Reads that wait for entries use one more connection per shard
	// and sink.
	PoolSize int `knob:"redis.pool_size" default:"50" want:"1 to 10_000 connections"`
	// How long a command waits for a free connection.
	PoolTimeout time.Duration `knob:"redis.pool_timeout" default:"4s" want:"1ms to 1m"`
	// Time limit for one attempt to connect to a server.
	DialTimeout time.Duration `knob:"redis.dial_timeout" default:"2s" want:"10ms to 1m"`
	// How long a command waits for its reply. A read that waits for entries waits consumer.block longer.
	ReadTimeout time.Duration `knob:"redis.read_timeout" default:"3s" want:"10ms to 1m"`
	// Time limit for sending a command.
	WriteTimeout time.Duration `knob:"redis.write_timeout" default:"3s" want:"10ms to 1m"`
	// How often a command is sent again if its reply was lost. Grabs do not count: they are repeated until
	// producer.call_timeout.
	Retries int `knob:"redis.retries" default:"2" want:"0 to 10"`
}

// TLS has the settings of TLS for a connection.
type TLS struct {
	// Connect to the servers with TLS 1.2 or newer.
	On       bool `knob:",common" default:"false"`
	TLSFiles `knob:""`
}

// TLSFiles are the files of a TLS connection. Empty fields mean the system's CAs, no client certificate, and the name
// of the dialled host.
type TLSFiles struct {
	// File with the certificates of the authorities that may sign the server's certificate, in PEM; empty for the
	// authorities of the system.
	CA string `knob:"_ca"`
	// File with this process' own certificate for the server, in PEM; empty for none.
	Cert string `knob:"_cert"`
	// File with the key of this process' certificate, in PEM. Protect this file like the file of a secret.
	Key string `knob:"_key"`
	// Name that the server's certificate must have; empty for the host in the address.
	ServerName string `knob:"_server_name"`
}

// Ledger has the settings of the connection to the ledger's database.
type Ledger struct {
	// Kind of database; mysql includes MariaDB. SQLite serves one machine; several machines need one of the others.
	Driver string `knob:"ledger.driver,common" default:"sqlite" want:"postgres, mysql, sqlite"`
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
	// Token that this process sends to the remote, as Authorization: Bearer.
	Token Secret   `knob:"remote.token,common" secret:"always"`
	TLS   TLSFiles `knob:"remote.tls"`
}

// Work has the settings of `hongbao work`.
type Work struct {
	// Address (host:port) of /livez, /readyz and /metrics, such as 127.0.0.1:8083; empty for no such listener.
	//
	// It is empty by default since several workers may run on one machine.
	OpsListen string `knob:"work.ops_listen,common" form:"ops"`
	// How many extra packets a restore withholds for grants that Redis lost and that a process without an answer may have
	// reported to users: as many of each campaign as the shard granted in this time. With 0s a person must decide about
	// such a loss.
	//
	// The shard then opens automatically; `hongbao hole` shows and grants the withheld packets.
	RestoreMargin time.Duration `knob:"work.restore_margin" default:"2s" want:"0s to 5m"`
}

// Ops has the settings that all ops listeners share.
type Ops struct {
	// Serve /debug/pprof on the ops listeners. Anyone who reaches that path can read the memory of the process.
	Pprof bool `knob:"ops.pprof" default:"false"`
	// How long a process caches the replies of Redis about lag and state, however often metrics are scraped.
	Poll time.Duration `knob:"ops.poll" default:"5s" want:"100ms to 5m"`
	// How long a process waits for a reply of Redis about lag and state.
	PollTimeout time.Duration `knob:"ops.poll_timeout" default:"2s" want:"100ms to 1m"`
	// The most campaigns that one metric names.
	Campaigns int `knob:"ops.campaigns" default:"20" want:"0 to 1000 campaigns"`
	// The highest normal age of the last audit of all campaigns: above it, the alert audit_old fires. Set it to the
	// interval of your audits, plus the time that one takes and a margin.
	AuditMaxAge time.Duration `knob:"ops.audit_max_age" default:"26h" want:"1m to 720h"`
}

// Kafka has the settings for logging in to Kafka; the other settings are in publish.Config.
type Kafka struct {
	TLS TLS `knob:"kafka.tls"`
	// How the process logs in to Kafka. The mechanisms plain and oauthbearer need TLS.
	SASLMechanism string `knob:"kafka.sasl_mechanism,common" default:"none" want:"none,plain,scram-sha-256,scram-sha-512,oauthbearer"`
	// User name for the login to Kafka.
	SASLUsername string `knob:"kafka.sasl_username,common"`
	// Password for the login to Kafka.
	SASLPassword Secret `knob:"kafka.sasl_password,common" secret:"always"`
	// File with the token of the mechanism oauthbearer. Each login reads it again, so a program of yours can renew it.
	// Protect this file like the file of a secret.
	SASLTokenFile string `knob:"kafka.sasl_token_file,common"`
}

// Tracing says which grabs are traced, and where their spans are sent.
type Tracing struct {
	// URL of the collector that receives spans by OTLP over HTTP, such as http://127.0.0.1:4318; empty for no traces. The
	// process appends /v1/traces to this URL.
	Endpoint string `knob:"tracing.endpoint,common" form:"url"`
	// One of this many requests is traced, unless the caller's traceparent decides. With 0 no request is selected.
	OneIn int `knob:"tracing.one_in,common" default:"1000" want:"0 to 1_000_000_000 requests"`
	// The most requests per second that one server selects for tracing. The same limit applies separately to requests
	// that callers select.
	PerSecond int `knob:"tracing.per_second" default:"100" want:"1 to 100_000 requests a second"`
}

// Log has the knobs of the log.
type Log struct {
	// The lowest level of the lines that are logged. Lines of lower levels are left out.
	Level string `knob:"log.level,common" default:"info" want:"debug, info, warn, error"`
	// Format of the log. json: one JSON object per line. console: text for people. auto: console in a terminal, otherwise
	// json.
	Format string `knob:"log.format" default:"auto" want:"auto, json, console"`
}

// Unsafe lists the checks that only warn.
type Unsafe struct {
	// Names of the checks that only log a warning when they fail. If any other check fails, the process does not start.
	// The first six names are settings of the ledger's database.
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
