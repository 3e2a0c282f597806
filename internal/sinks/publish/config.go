package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config has the settings of a Publisher or a Log. A zero value is refused unless the field's comment allows it.
type Config struct {
	// Addresses (host:port) of some brokers of the cluster. The process finds the other brokers by itself.
	Brokers []string `knob:"kafka.brokers,common" default:"127.0.0.1:9092" form:"address"`
	// Name of the process in the logs and quotas of the brokers.
	ClientID string `knob:"kafka.client_id" default:"hongbao" form:"name"`
	// TLS and SASL secure the connections. nil means that they are not used.
	TLS  *tls.Config
	SASL sasl.Mechanism
	// Roots, if not nil, returns the authorities for each new connection by TLS, in place of TLS.RootCAs.
	Roots func() *x509.CertPool

	// Name of the topic that receives the grants.
	Topic string `knob:"kafka.topic,common" default:"hongbao.grants" form:"topic"`
	// Number of partitions of the topic. The number of a shard's partition is the shard's number modulo this number. So
	// never change this number.
	Partitions int `knob:"kafka.partitions,common" default:"1" want:"1 to 10_000"`
	// Whether Hongbao creates the topic if it is missing.
	Create bool `knob:"kafka.create_topic,common" default:"false"`
	// Number of replicas of each partition in a topic that Hongbao creates.
	ReplicationFactor int `knob:"kafka.replication_factor,common" default:"3" want:"1 to 100"`

	// Campaigns supplies data that a grant may lack. This is the code of a coupon, and the currency of a grant from the
	// ledger. If Campaigns is nil, messages have neither.
	Campaigns cloudevent.Campaigns

	// Observe, if not nil, is called after each request with the request's name in Kafka's protocol. err is set if no
	// response came; a response with an error code counts as a response. Observe must be quick and safe for concurrent
	// use.
	Observe func(request string, took time.Duration, err error) `json:"-"`

	// Dial, if not nil, opens the connections to the brokers, for example in a simulation.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`

	// Epoch, if not nil, returns the ledger's epoch of a shard. If it is later than the batch's epoch
	// (hongbao.Batch), the shard was restored elsewhere, and the Publisher makes no claim in it. A Log does not need
	// Epoch.
	Epoch func(ctx context.Context, shard int) (int64, error) `json:"-"`

	// Deployment is the id of the deployment. The source of its events is /hongbao/<Deployment>.
	Deployment string `form:"name"`
	// Founding is the random text that distinguishes the deployment from others with the same id. It is empty if the
	// deployment has none, or if a Log does not know it. Every record has it in a header. A Publisher does not write to
	// a partition whose last record has a different founding, and readers skip such records.
	Founding string
	// AnyFounding lets a Publisher write to a partition even if its last record is from another deployment.
	AnyFounding bool
	// Worker is this worker's name in claims. A Log does not need it.
	Worker string

	// The most grants in one batch.
	BatchGrants int `knob:"publisher.batch_grants" default:"2000" want:"1 to 20_000 grants"`
	// The largest size of one batch before compression. It must not exceed the topic's max.message.bytes.
	//
	// Even the smallest allowed batch has room for several grants of maximum size.
	BatchBytes int `knob:"publisher.batch_bytes" default:"1000000" want:"8192 to 67_108_864 bytes"`

	// Compression of the batches.
	Compression string `knob:"publisher.compression" default:"none" want:"none, gzip, snappy, lz4, zstd"`

	// Time limit for one attempt to connect to a broker, including its handshakes.
	DialTimeout time.Duration `knob:"publisher.dial_timeout" default:"5s" want:"10ms to 1m"`
	// Time limit for one request to a broker. The broker has half of this time to replicate a batch.
	RequestTimeout time.Duration `knob:"publisher.request_timeout" default:"5s" want:"100ms to 5m"`
	// After this time without a request, a connection to a broker is closed. It must be shorter than the brokers'
	// connections.max.idle.ms.
	IdleTimeout time.Duration `knob:"publisher.idle_timeout" default:"5m" want:"1s to 9m"`
	// The largest age of cached metadata. Until then the publisher may miss that a partition has another leader.
	MetadataTTL time.Duration `knob:"publisher.metadata_ttl" default:"5s" want:"100ms to 5m"`

	// How long the publisher tries to send one batch before it counts an outage.
	//
	// The claim of the batch stays.
	AttemptTime time.Duration `knob:"publisher.attempt_time" default:"15s" want:"100ms to 10m"`
	// The largest age of a claim when the publisher sends its batch.
	//
	// The age counts by the monotonic and by the wall clock. It must be below the consumer's lease, and at least
	// AttemptTime.
	MaxClaimAge time.Duration `knob:"publisher.max_claim_age" default:"20s" want:"100ms to 10m"`
	// At most the brokers' producer.id.expiration.ms. During half of this time the publisher sends stored batches again
	// without reading the topic.
	//
	// Check lowers it to the brokers' value.
	ProducerExpiration time.Duration `knob:"publisher.producer_expiration" default:"24h" want:"1m to 8760h"`
	// The largest response that the process accepts when it reads the topic.
	FetchBytes int `knob:"publisher.fetch_bytes" default:"8388608" want:"65_536 to 1_073_741_824 bytes"`
}

// maxBatchGrants, maxBatchBytes and maxPartitions limit the values of Config and of stored batches.
const (
	maxBatchGrants = 20_000
	maxBatchBytes  = 64 << 20
	maxPartitions  = 10_000
)

// validate returns all problems in one error.
func (c *Config) validate() error {
	checked := *c
	if !c.Create {
		checked.ReplicationFactor = 1
	}
	errs := knob.Check(&checked)
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(c.Brokers) > 0, "Brokers is empty: name at least one host:port")
	need(c.AttemptTime <= c.MaxClaimAge, "AttemptTime %v is above MaxClaimAge %v", c.AttemptTime, c.MaxClaimAge)
	need(c.MaxClaimAge <= c.ProducerExpiration/4,
		"MaxClaimAge %v is above a quarter of ProducerExpiration %v: the broker could forget a producer in mid-send",
		c.MaxClaimAge, c.ProducerExpiration)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("publisher configuration: %w", errors.Join(errs...))
}
