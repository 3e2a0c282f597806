package publish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config has every knob of a Publisher. A zero value is refused unless the field says otherwise.
type Config struct {
	// Some brokers of the cluster; the rest is discovered.
	Brokers []string `knob:"kafka.brokers,common" default:"127.0.0.1:9092" form:"address"`
	// Name of this process in the brokers' logs and quotas.
	ClientID string `knob:"kafka.client_id" default:"hongbao" form:"name"`
	// TLS and SASL secure the connections; nil for none.
	TLS  *tls.Config
	SASL sasl.Mechanism

	// Topic that receives the grants.
	Topic string `knob:"kafka.topic,common" default:"hongbao.grants" form:"topic"`
	// Partitions of the topic. A shard's partition is the shard modulo this, so never change it.
	Partitions int `knob:"kafka.partitions,common" default:"1" want:"1 to 10_000"`
	// Create the topic if it is missing.
	Create bool `knob:"kafka.create_topic,common" default:"false"`
	// Copies of each partition of a topic that is created.
	//
	// Ignored if Create is false.
	ReplicationFactor int `knob:"kafka.replication_factor,common" default:"3" want:"1 to 100"`

	// Campaigns has data that a grant may lack: the code of a coupon, and the currency of a grant from the ledger or
	// from an entry of an earlier build. nil leaves both out of the messages.
	Campaigns Campaigns

	// Observe, if not nil, is called for each request that has ended, with its name in Kafka's protocol. An error says
	// that no response came; a broker's refusal is a response. It must be quick, and is called concurrently.
	Observe func(request string, took time.Duration, err error) `json:"-"`

	// Epoch, if not nil, returns the ledger's epoch of a shard. If the ledger's epoch is later than the batch's
	// (stream.WithEpoch), a Publisher makes no claim in the shard: it was restored elsewhere. A Log needs none.
	Epoch func(ctx context.Context, shard int) (int64, error) `json:"-"`

	// Deployment is the deployment's name; the source of its events is /hongbao/<Deployment>.
	Deployment string `form:"name"`
	// Founding distinguishes the deployment from others with the same name. It is empty if the deployment has none, or
	// if a Log does not know it. It is a header of every record. A Publisher does not write to a partition whose last
	// record has another founding. Readers skip records that have another founding.
	Founding string
	// AnyFounding also publishes after the record of another deployment.
	AnyFounding bool
	// Worker names this worker in the claims. A Log needs none.
	Worker string

	// Maximum number of grants in one batch.
	BatchGrants int `knob:"publisher.batch_grants" default:"2000" want:"1 to 20_000 grants"`
	// Size of one batch at most, before it is compressed; not above the topic's max.message.bytes.
	//
	// The largest grant fits into the smallest batch several times.
	BatchBytes int `knob:"publisher.batch_bytes" default:"1000000" want:"8192 to 67_108_864 bytes"`

	// Compression of the batches.
	//
	// Set it once every worker's build supports it: an older worker leaves the compressed batches of a killed worker to
	// the others.
	Compression string `knob:"publisher.compression" default:"none" want:"none, gzip, snappy, lz4, zstd"`

	// One connect with its handshakes.
	DialTimeout time.Duration `knob:"publisher.dial_timeout" default:"5s" want:"10ms to 1m"`
	// One request. The broker has half of this time to replicate a batch.
	RequestTimeout time.Duration `knob:"publisher.request_timeout" default:"5s" want:"100ms to 5m"`
	// Unused connections are closed after this; below the brokers' connections.max.idle.ms.
	IdleTimeout time.Duration `knob:"publisher.idle_timeout" default:"5m" want:"1s to 9m"`
	// How long a moved leader can go unnoticed.
	MetadataTTL time.Duration `knob:"publisher.metadata_ttl" default:"5s" want:"100ms to 5m"`

	// How long one batch is sent again and again before it counts as an outage.
	//
	// Its claim stays.
	AttemptTime time.Duration `knob:"publisher.attempt_time" default:"15s" want:"100ms to 10m"`
	// How old a claim may be when its batch is sent.
	//
	// Measured by both clocks. It must be below the consumer's lease, and at least AttemptTime.
	MaxClaimAge time.Duration `knob:"publisher.max_claim_age" default:"20s" want:"100ms to 10m"`
	// The brokers' producer.id.expiration.ms, or less. For half of this time stored batches are sent again without
	// reading the log.
	//
	// Check lowers it to what the brokers answer.
	ProducerExpiration time.Duration `knob:"publisher.producer_expiration" default:"24h" want:"1m to 8760h"`
	// Maximum size of one response when the topic is read.
	FetchBytes int `knob:"publisher.fetch_bytes" default:"8388608" want:"65_536 to 1_073_741_824 bytes"`
}

// maxBatchGrants, maxBatchBytes and maxPartitions are bounds of Config, and of stored batches.
const (
	maxBatchGrants = 20_000
	maxBatchBytes  = 64 << 20
	maxPartitions  = 10_000
)

// validate returns every problem at once.
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
