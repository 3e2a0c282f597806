package subscriber

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config configures a Subscriber. Take DefaultConfig and fill in the other fields. A zero is refused unless the field
// says otherwise.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; the rest is discovered.
	Brokers []string `form:"address"`
	// ClientID names this process in the broker's logs and quotas.
	ClientID string `form:"name"`
	// TLS and SASL secure the connections; nil for none.
	TLS  *tls.Config
	SASL sasl.Mechanism

	// Topic is read from its beginning by a group that has no offsets yet.
	Topic string `form:"topic"`
	// Group is the consumer group. Its members share the partitions.
	Group string `form:"group"`
	// Deployment is the deployment whose events are read; those of other deployments are foreign.
	Deployment string `form:"name"`
	// DeadLetters is the topic for records that can't be read and events that failed permanently. It must exist;
	// Kafka may expire it, so give it a long retention and an alarm.
	DeadLetters string `form:"topic"`
	Sink        Sink
	Log         *zap.Logger

	// BatchEvents is how many records of a partition are handled, and committed, at once.
	BatchEvents int `default:"500" want:"1 to 10_000"`
	// Linger is how long a batch that has a record waits for more.
	Linger time.Duration `default:"5ms" want:"1ms to 10s"`
	// MaxWait is how long the broker may delay a fetch that finds nothing. Run can take as long to end.
	MaxWait time.Duration `default:"500ms" want:"10ms to 30s"`
	// FetchBytes bounds one fetch of one partition; at least the topic's max.message.bytes.
	FetchBytes int `default:"8388608" want:"65_536 to 1_073_741_824"`
	// SessionTimeout is how long a silent member keeps its partitions; it sends a heartbeat every third of it. It
	// must be within the broker's group.min.session.timeout.ms (6 s) and group.max.session.timeout.ms.
	SessionTimeout time.Duration `default:"30s" want:"1s to 30m"`
	// RequestTimeout bounds a connect and a write of a dead letter.
	RequestTimeout time.Duration `default:"10s" want:"100ms to 5m"`
	// CommitTimeout is how long Run repeats a failed commit before it continues without it: the next commit covers it.
	CommitTimeout time.Duration `default:"10s" want:"100ms to 10m"`
	// DrainTimeout is how long a worker continues with the current batch after Run's context ended, or after the group
	// began a rebalance. All members wait for each other that long in a rebalance.
	DrainTimeout time.Duration `default:"20s" want:"0s to 1h"`
	// MaxAttempts is how often an event that fails alone is tried before it becomes a dead letter.
	MaxAttempts int `default:"10" want:"1 to 1000"`
	// Backoff after the first failure; each further one doubles it, up to MaxBackoff.
	Backoff    time.Duration `default:"100ms" want:"1ms to 1h"`
	MaxBackoff time.Duration `default:"30s" want:"1ms to 1h"`
}

// DefaultConfig returns every default except Brokers, ClientID, Topic, Group, Deployment, DeadLetters, Sink and Log.
func DefaultConfig() Config { return knob.Defaults[Config]() }

// check returns one error that names every problem.
func (c *Config) check() error {
	errs := knob.Check(c)
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(c.Brokers) > 0, "Brokers is empty: name at least one host:port")
	need(c.Sink != nil && c.Log != nil, "Sink and Log are required")
	need(c.DeadLetters != c.Topic, "DeadLetters is the topic itself: what fails would come again forever")
	need(c.MaxBackoff >= c.Backoff, "MaxBackoff is %s: want at least Backoff, %s", c.MaxBackoff, c.Backoff)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("subscriber configuration: %w", errors.Join(errs...))
}

func newDialer(c *Config) *kafka.Dialer {
	return &kafka.Dialer{
		ClientID: c.ClientID, Timeout: c.RequestTimeout, DualStack: true, KeepAlive: 15 * time.Second, TLS: c.TLS,
		SASLMechanism: c.SASL,
	}
}

func errorLog(c *Config) kafka.Logger {
	log := c.Log.Sugar()
	return kafka.LoggerFunc(func(format string, args ...any) { log.Warnf("kafka: "+format, args...) })
}

// groupConfig writes out every option of kafka-go's ConsumerGroup.
func groupConfig(c *Config) kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID:                c.Group,
		Brokers:           c.Brokers,
		Dialer:            newDialer(c),
		Topics:            []string{c.Topic},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}, kafka.RoundRobinGroupBalancer{}},
		HeartbeatInterval: c.SessionTimeout / 3,
		SessionTimeout:    c.SessionTimeout,
		// A member that has to give its partitions up finishes its batches first, see DrainTimeout.
		RebalanceTimeout:      max(c.SessionTimeout, c.DrainTimeout+c.RequestTimeout),
		JoinGroupBackoff:      c.Backoff,
		RetentionTime:         -time.Millisecond, // the broker's default: offsets.retention.minutes
		WatchPartitionChanges: false,             // a topic's partitions never change, see docs/topic.md
		// A new group begins at the beginning. The default does the same; LastOffset would lose the earlier records.
		StartOffset: kafka.FirstOffset,
		Timeout:     c.RequestTimeout,
		ErrorLogger: errorLog(c),
	}
}

// readerConfig writes out every option of kafka-go's Reader of one partition.
func readerConfig(c *Config, partition int) kafka.ReaderConfig {
	return kafka.ReaderConfig{
		Brokers:               c.Brokers,
		Topic:                 c.Topic,
		Partition:             partition,
		Dialer:                newDialer(c),
		QueueCapacity:         c.BatchEvents,
		MinBytes:              1,
		MaxBytes:              c.FetchBytes,
		MaxWait:               c.MaxWait,
		ReadBatchTimeout:      c.RequestTimeout,
		ReadLagInterval:       -1,
		IsolationLevel:        kafka.ReadCommitted,
		ReadBackoffMin:        50 * time.Millisecond,
		ReadBackoffMax:        c.MaxWait + 50*time.Millisecond,
		MaxAttempts:           3,
		OffsetOutOfRangeError: true, // otherwise the reader skips expired records silently
		ErrorLogger:           errorLog(c),
	}
}

// newReader reads a partition from an offset; kafka.FirstOffset is the beginning of the log.
func newReader(c *Config, partition int, offset int64) *kafka.Reader {
	r := kafka.NewReader(readerConfig(c, partition))
	_ = r.SetOffset(offset) // it fails on a closed reader only
	return r
}

// newWriter writes out every option of kafka-go's Writer. It may write a dead letter twice: the headers identify a
// copy.
func newWriter(c *Config) *kafka.Writer {
	return &kafka.Writer{
		Addr:            kafka.TCP(c.Brokers...),
		Topic:           c.DeadLetters,
		Balancer:        &kafka.Hash{},
		MaxAttempts:     1, // bury repeats
		BatchSize:       1,
		BatchBytes:      maxDeadLetter,
		BatchTimeout:    time.Millisecond,
		ReadTimeout:     c.RequestTimeout,
		WriteTimeout:    c.RequestTimeout,
		RequiredAcks:    kafka.RequireAll,
		Async:           false,
		Transport:       &kafka.Transport{ClientID: c.ClientID, DialTimeout: c.RequestTimeout, TLS: c.TLS, SASL: c.SASL},
		WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: time.Second,
		AllowAutoTopicCreation: false,
	}
}
