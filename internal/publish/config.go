package publish

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Config is every knob of a Publisher. A zero value is refused where the field does not say otherwise.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; the rest is discovered.
	Brokers []string
	// ClientID is what the broker's logs and quotas call this process.
	ClientID string
	// TLS and SASL secure the connections; nil for none.
	TLS  *tls.Config
	SASL sasl.Mechanism

	// Topic takes the grants. Partitions is how many it has; it must not change while a deployment lives, as a shard's
	// partition is the shard modulo Partitions.
	Topic      string
	Partitions int
	// Create makes Check create the topic if it is missing, with Partitions and ReplicationFactor; ReplicationFactor may
	// be 0 if Create is false.
	Create            bool
	ReplicationFactor int

	// Campaigns tells currencies and the codes of coupons, which the stream does not carry; nil leaves both out of the
	// messages.
	Campaigns Campaigns

	// Deployment is the deployment's name; the source of its events is /hongbao/<Deployment>.
	Deployment string
	// Worker names this worker in the claims. A Log needs none.
	Worker string

	// BatchGrants and BatchBytes bound a batch. BatchBytes must not be above the topic's max.message.bytes.
	BatchGrants int
	BatchBytes  int

	// DialTimeout bounds a connect with its handshakes, RequestTimeout any single request; the broker is given half of
	// it to replicate a batch.
	DialTimeout    time.Duration
	RequestTimeout time.Duration
	// IdleTimeout closes unused connections; below the broker's connections.max.idle.ms (10 minutes).
	IdleTimeout time.Duration
	// MetadataTTL is how long a moved leader can go unnoticed.
	MetadataTTL time.Duration

	// AttemptTime is how long one batch is sent again and again before Handle gives up with an outage; its claim stays.
	AttemptTime time.Duration
	// MaxClaimAge is how old a claim may be, by both clocks, when its batch is sent. It must be below the consumer's
	// lease, and at least AttemptTime.
	MaxClaimAge time.Duration
	// ProducerExpiration is the brokers' producer.id.expiration.ms (default 24 h). Stored batches are sent again for half
	// of it. Check lowers it to what the brokers answer.
	ProducerExpiration time.Duration
	// FetchBytes bounds one answer when the topic is read.
	FetchBytes int
}

// Bounds of the configuration.
const (
	MaxBatchGrants = 20_000
	MinBatchBytes  = 8 << 10 // the largest grant fits several times
	MaxBatchBytes  = 64 << 20
	MaxPartitions  = 10_000
)

var (
	topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)
)

// validate names every problem at once.
func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(c.Brokers) > 0, "Brokers is empty: name at least one host:port")
	for i, b := range c.Brokers {
		need(b != "", "Brokers[%d] is empty", i)
	}
	need(plainName.MatchString(c.ClientID), "ClientID %.70q: want 1 to 64 of a-z A-Z 0-9 . _ -", c.ClientID)
	need(topicName.MatchString(c.Topic) && c.Topic != "." && c.Topic != "..", "Topic %.80q is no Kafka topic name",
		c.Topic)
	need(c.Partitions >= 1 && c.Partitions <= MaxPartitions, "Partitions is %d: want 1 to %d", c.Partitions, MaxPartitions)
	need(c.ReplicationFactor >= 0 && c.ReplicationFactor <= 100, "ReplicationFactor is %d: want 1 to 100",
		c.ReplicationFactor)
	need(!c.Create || c.ReplicationFactor > 0, "ReplicationFactor is 0, but Create needs it")
	need(plainName.MatchString(c.Deployment), "Deployment %.70q: want 1 to 64 of a-z A-Z 0-9 . _ -", c.Deployment)
	need(c.BatchGrants >= 1 && c.BatchGrants <= MaxBatchGrants, "BatchGrants is %d: want 1 to %d", c.BatchGrants,
		MaxBatchGrants)
	need(c.BatchBytes >= MinBatchBytes && c.BatchBytes <= MaxBatchBytes,
		"BatchBytes is %d: want %d to %d", c.BatchBytes, MinBatchBytes, MaxBatchBytes)
	need(c.FetchBytes >= 64<<10 && c.FetchBytes <= 1<<30, "FetchBytes is %d: want 64 KiB to 1 GiB", c.FetchBytes)
	for _, d := range []struct {
		name      string
		value     time.Duration
		low, high time.Duration
	}{
		{"DialTimeout", c.DialTimeout, 10 * time.Millisecond, time.Minute},
		{"RequestTimeout", c.RequestTimeout, 100 * time.Millisecond, 5 * time.Minute},
		{"IdleTimeout", c.IdleTimeout, time.Second, 9 * time.Minute},
		{"MetadataTTL", c.MetadataTTL, 100 * time.Millisecond, 5 * time.Minute},
		{"AttemptTime", c.AttemptTime, 100 * time.Millisecond, 10 * time.Minute},
		{"MaxClaimAge", c.MaxClaimAge, 100 * time.Millisecond, 10 * time.Minute},
		{"ProducerExpiration", c.ProducerExpiration, time.Minute, 365 * 24 * time.Hour},
	} {
		need(d.value >= d.low && d.value <= d.high, "%s is %v: want %v to %v", d.name, d.value, d.low, d.high)
	}
	need(c.AttemptTime <= c.MaxClaimAge, "AttemptTime %v is above MaxClaimAge %v", c.AttemptTime, c.MaxClaimAge)
	need(c.MaxClaimAge <= c.ProducerExpiration/4,
		"MaxClaimAge %v is above a quarter of ProducerExpiration %v: the broker could forget a producer in mid-send",
		c.MaxClaimAge, c.ProducerExpiration)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("publisher configuration: %w", errors.Join(errs...))
}
