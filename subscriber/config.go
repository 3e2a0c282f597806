package subscriber

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"go.uber.org/zap"
)

// Config of a Subscriber. Take DefaultConfig and fill in what it leaves out; a zero is refused where the field does not
// say otherwise.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; the rest is discovered.
	Brokers []string
	// ClientID is what the broker's logs and quotas call this process.
	ClientID string
	// TLS and SASL secure the connections; nil for none.
	TLS  *tls.Config
	SASL sasl.Mechanism

	// Topic is read from its beginning by a group that has no offsets yet.
	Topic string
	// Group is the consumer group. Its members share the partitions.
	Group string
	// Deployment is the one whose events are read; those of others are foreign.
	Deployment string
	// DeadLetters is the topic that takes what can't be read or has failed for good. It must exist; Kafka may expire it,
	// so give it a long retention and an alarm.
	DeadLetters string
	Sink        Sink
	Log         *zap.Logger

	// BatchEvents is how many records of a partition are handled, and committed, at once. 1 to 10,000.
	BatchEvents int
	// Linger is how long a batch that has a record waits for more. 1 ms to 10 s.
	Linger time.Duration
	// MaxWait is how long the broker may hold a fetch that finds nothing; Run's end can take as long. 10 ms to 30 s.
	MaxWait time.Duration
	// FetchBytes bounds one fetch of one partition; at least the topic's max.message.bytes. 64 KiB to 1 GiB.
	FetchBytes int
	// SessionTimeout is how long a silent member keeps its partitions; it says that it lives every third of it. It must be
	// within the broker's group.min.session.timeout.ms (6 s) and group.max.session.timeout.ms. 1 s to 30 min.
	SessionTimeout time.Duration
	// RequestTimeout bounds a connect and a write of a dead letter. 100 ms to 5 min.
	RequestTimeout time.Duration
	// CommitTimeout is how long a commit is tried again before Run goes on without it: the next one covers it. 100 ms to
	// 10 min.
	CommitTimeout time.Duration
	// DrainTimeout is how long a worker goes on with the batch in hand after Run's context ended, or after the group was
	// asked to share its partitions anew: all members wait that long for each other then. 0 to 1 h.
	DrainTimeout time.Duration
	// MaxAttempts is how often an event that fails alone is tried before it becomes a dead letter. 1 to 1,000.
	MaxAttempts int
	// Backoff after the first failure; each further one doubles it, up to MaxBackoff. 1 ms to 1 h.
	Backoff, MaxBackoff time.Duration
}

// DefaultConfig has every default but Brokers, ClientID, Topic, Group, Deployment, DeadLetters, Sink and Log.
func DefaultConfig() Config {
	return Config{
		BatchEvents: 500, Linger: 5 * time.Millisecond, MaxWait: 500 * time.Millisecond, FetchBytes: 8 << 20,
		SessionTimeout: 30 * time.Second, RequestTimeout: 10 * time.Second, CommitTimeout: 10 * time.Second,
		DrainTimeout: 20 * time.Second,
		MaxAttempts:  10, Backoff: 100 * time.Millisecond, MaxBackoff: 30 * time.Second,
	}
}

var (
	groupName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)
)

// isTopic tells what Kafka takes as the name of a topic.
func isTopic(name string) bool { return groupName.MatchString(name) && name != "." && name != ".." }

// check names every problem at once.
func (c *Config) check() error {
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
	need(c.Sink != nil && c.Log != nil, "Sink and Log are required")
	need(plainName.MatchString(c.ClientID), "ClientID %.70q: want 1 to 64 of a-z A-Z 0-9 . _ -", c.ClientID)
	need(isTopic(c.Topic), "Topic %.80q is no Kafka topic name", c.Topic)
	need(groupName.MatchString(c.Group), "Group %.80q: want 1 to 249 of a-z A-Z 0-9 . _ -", c.Group)
	need(plainName.MatchString(c.Deployment), "Deployment %.70q: want 1 to 64 of a-z A-Z 0-9 . _ -", c.Deployment)
	need(isTopic(c.DeadLetters), "DeadLetters %.80q is no Kafka topic name", c.DeadLetters)
	need(c.DeadLetters != c.Topic, "DeadLetters is the topic itself: what fails would come again for ever")
	number := func(name string, v, low, high int) {
		need(v >= low && v <= high, "%s is %d: want %d to %d", name, v, low, high)
	}
	number("BatchEvents", c.BatchEvents, 1, 10_000)
	number("FetchBytes", c.FetchBytes, 64<<10, 1<<30)
	number("MaxAttempts", c.MaxAttempts, 1, 1_000)
	span := func(name string, v, low, high time.Duration) {
		need(v >= low && v <= high, "%s is %s: want %s to %s", name, v, low, high)
	}
	const ms = time.Millisecond
	span("Linger", c.Linger, ms, 10*time.Second)
	span("MaxWait", c.MaxWait, 10*ms, 30*time.Second)
	span("SessionTimeout", c.SessionTimeout, time.Second, 30*time.Minute)
	span("RequestTimeout", c.RequestTimeout, 100*ms, 5*time.Minute)
	span("CommitTimeout", c.CommitTimeout, 100*ms, 10*time.Minute)
	span("DrainTimeout", c.DrainTimeout, 0, time.Hour)
	span("Backoff", c.Backoff, ms, time.Hour)
	span("MaxBackoff", c.MaxBackoff, c.Backoff, time.Hour)
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
		// A member that is asked to give its partitions up finishes its batches first, see DrainTimeout.
		RebalanceTimeout:      max(c.SessionTimeout, c.DrainTimeout+c.RequestTimeout),
		JoinGroupBackoff:      c.Backoff,
		RetentionTime:         -time.Millisecond, // as the broker says: offsets.retention.minutes
		WatchPartitionChanges: false,             // a topic's partitions never change, see docs/topic.md
		// A new group begins at the beginning: the default would do the same, LastOffset would lose what came before.
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
		OffsetOutOfRangeError: true, // else what expired is skipped in silence
		ErrorLogger:           errorLog(c),
	}
}

// newReader reads a partition from an offset on; kafka.FirstOffset is the beginning of the log.
func newReader(c *Config, partition int, offset int64) *kafka.Reader {
	r := kafka.NewReader(readerConfig(c, partition))
	_ = r.SetOffset(offset) // it fails on a closed reader only
	return r
}

// newWriter writes out every option of kafka-go's Writer. It may write a dead letter twice: its headers tell the copy.
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
