package configs

import (
	"crypto/tls"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// The sinks that exist, by the names of their consumer groups.
const (
	SinkBalance = "balance"
	SinkKafka   = "kafka"
)

// The ways to reach Redis.
const (
	Standalone = "standalone"
	Sentinel   = "sentinel"
	Cluster    = "cluster"
)

// Config is the merged and checked configuration; Load makes it. docs/configuration.md says what each field means. It
// is not to be changed once it was loaded: its methods rely on the checks.
type Config struct {
	Deployment Deployment
	Redis      Redis
	Ledger     Ledger
	Settlement Settlement
	Remote     Remote
	Balance    Balance
	Kafka      Kafka
	Publisher  Publisher
	Campaign   Campaign
	Producer   Producer
	Consumer   Consumer
	Trimmer    Trimmer
	Log        Log
	Unsafe     Unsafe

	settings []Setting

	redisTLS, kafkaTLS, remoteTLS, balanceTLS *tls.Config
	kafkaSASL                                 sasl.Mechanism
	pairs                                     []*keyPair
}

// Deployment is what all processes of a deployment have in common. Only Sinks may change during its life.
type Deployment struct {
	ID, KeyPrefix string
	Shards        int
	Sinks         []string
}

// Redis says how to reach it.
type Redis struct {
	Mode                                                            string
	Addrs                                                           []string
	MasterName                                                      string
	Username                                                        string
	Password                                                        Secret
	SentinelUsername                                                string
	SentinelPassword                                                Secret
	DB                                                              int
	TLS                                                             TLS
	PoolSize                                                        int
	PoolTimeout, DialTimeout, ReadTimeout, WriteTimeout, MaxIdleAge time.Duration
	Retries                                                         int
}

// TLS of a connection.
type TLS struct {
	On bool
	TLSFiles
}

// TLSFiles are empty for the system's roots, no client certificate, the dialled name.
type TLSFiles struct {
	CA, Cert, Key, ServerName string
}

// Ledger says how to reach the ledger's database.
type Ledger struct {
	Driver                               string
	DSN                                  Secret
	Conns                                int
	ConnectTimeout, LockTimeout, Timeout time.Duration
	Retries                              int
}

// Kafka says how to reach it, and names the topic.
type Kafka struct {
	Brokers           []string
	ClientID, Topic   string
	Partitions        int
	CreateTopic       bool
	ReplicationFactor int
	TLS               TLS
	SASLMechanism     string
	SASLUsername      string
	SASLPassword      Secret
}

// Publisher holds the knobs of package publish.
type Publisher struct {
	BatchGrants, BatchBytes                               int
	DialTimeout, RequestTimeout, IdleTimeout, MetadataTTL time.Duration
	AttemptTime, MaxClaimAge, ProducerExpiration          time.Duration
	FetchBytes                                            int
}

// Campaign holds the knobs of package campaign.
type Campaign struct {
	LoadChunk     int
	LoadPatience  time.Duration
	CachedPackets int64
	Grace         time.Duration
}

// Producer holds the knobs of package producer.
type Producer struct {
	MaxBacklog                                       int64
	InFlight, MaxWaiting                             int
	CallTimeout, UndecidedTimeout, DurabilityTimeout time.Duration
}

// Consumer holds the knobs of package consumer, the same for every sink.
type Consumer struct {
	BatchGrants, MaxEntries                         int
	Block, Poll, Lease, HandleTimeout, DrainTimeout time.Duration
	MaxAttempts                                     int64
	Backoff, MaxBackoff                             time.Duration
}

// Trimmer holds the knobs of consumer's Trimmer.
type Trimmer struct {
	Every, Retention time.Duration
	MaxEvents        int64
	ForgetAfter      time.Duration
}

// Log holds the knobs of the log.
type Log struct{ Level, Format string }

// Unsafe names the checks that shall warn instead of refusing.
type Unsafe struct{ Allow []string }

// Setting is one knob as it was set.
type Setting struct {
	// Name of the knob; Value as text, *** for a secret that is set; Source is "default" or where it came from.
	Name, Value, Source string
}

// Settings lists every knob in the order of the reference, for a person to read. Secrets are not in it.
func (c *Config) Settings() []Setting { return append([]Setting(nil), c.settings...) }

// Secret is a text that prints as *** and marshals as ***, so that it does not end up in a log.
type Secret string

// Reveal gives the text itself.
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
