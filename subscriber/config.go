package subscriber

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/broker"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config configures a Subscriber. Start from DefaultConfig and set the fields that have no default; New rejects a zero
// Config.
type Config struct {
	// Brokers has the addresses, host:port, of some brokers of the cluster. The client finds the others.
	Brokers []string `form:"address"`
	// ClientID is the name of this process in the logs and quotas of the broker.
	ClientID string `form:"name"`
	// TLS and SASL secure the connections; nil means not to use them.
	TLS  *tls.Config
	SASL sasl.Mechanism
	// Dial, if not nil, opens the connections to the brokers, for example through a proxy or in a simulation.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Topic is the topic of grants. A new group reads it from the beginning.
	Topic string `form:"topic"`
	// Group is the consumer group, whose members share the partitions.
	Group string `form:"group"`
	// Deployment is the deployment whose events are handled. Events of other deployments are ignored as foreign.
	Deployment string `form:"name"`
	// Since is when this subscriber began to owe grants; zero means ever. A group without committed offsets may be new, or
	// may have been away for longer than the broker keeps its offsets. Run returns a Broken error if events expired before
	// such a group read them, unless all of them are older than Since. Run also reads older events that the topic still
	// has.
	Since time.Time
	// DeadLetters is the topic for records that can't be read and for events that failed permanently. It must exist.
	// Give it a long retention, because expired dead letters are lost, and raise an alarm when it gets a record.
	DeadLetters string `form:"topic"`
	Sink        Sink
	Log         *zap.Logger

	// BatchEvents is the maximum number of records of a partition in a batch. A batch is handled and committed as a
	// whole.
	BatchEvents int `default:"500" want:"1 to 10_000"`
	// Linger is how long a batch with at least one record waits for more records.
	Linger time.Duration `default:"5ms" want:"1ms to 10s"`
	// MaxWait is how long the broker may delay an empty reply to a fetch. The end of Run may take as long.
	MaxWait time.Duration `default:"500ms" want:"10ms to 30s"`
	// FetchBytes limits one fetch of one partition. It must be at least the topic's max.message.bytes.
	FetchBytes int `default:"8388608" want:"65_536 to 1_073_741_824"`
	// SessionTimeout is how long a member without heartbeats keeps its partitions. Members send three heartbeats in
	// this time. It must be within the broker's group.min.session.timeout.ms (6 s) and group.max.session.timeout.ms.
	SessionTimeout time.Duration `default:"30s" want:"1s to 30m"`
	// RequestTimeout limits the time to connect, to find the leader of a partition, and to write a dead letter.
	RequestTimeout time.Duration `default:"10s" want:"100ms to 5m"`
	// CommitTimeout is how long a worker retries a failed commit. Then it continues, because the next commit includes
	// this one.
	CommitTimeout time.Duration `default:"10s" want:"100ms to 10m"`
	// DrainTimeout is how long a worker may go on with its current batch after the end of Run's context, or after the
	// begin of a rebalance. In a rebalance all members wait for each other for up to this time. It must be at most two
	// thirds of SessionTimeout: a member that lost its broker notices that at its next heartbeat, and must have stopped
	// before another member gets the partition.
	DrainTimeout time.Duration `default:"20s" want:"0s to 1h"`
	// MaxAttempts is how often an event is tried, alone in its batch, before it becomes a dead letter.
	MaxAttempts int `default:"10" want:"1 to 1000"`
	// Backoff is the wait after the first failure. It doubles after each further failure, up to MaxBackoff.
	Backoff    time.Duration `default:"100ms" want:"1ms to 1h"`
	MaxBackoff time.Duration `default:"30s" want:"1ms to 1h"`
}

// DefaultConfig returns a Config with all defaults. Brokers, ClientID, Topic, Group, Deployment, DeadLetters, Sink and
// Log have none.
func DefaultConfig() Config { return knob.Defaults[Config]() }

func (c *Config) check() error {
	errs := knob.Check(c)
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(c.Brokers) > 0, "Brokers is empty: name at least one host:port")
	need(c.Sink != nil && c.Log != nil, "Sink and Log are required")
	need(c.DeadLetters != c.Topic, "DeadLetters is the topic itself: failed events would be read again forever")
	need(c.DrainTimeout <= c.SessionTimeout-c.SessionTimeout/3, "DrainTimeout is %s: want at most two thirds of "+
		"SessionTimeout, %s; otherwise another member may get a partition whose batch is not finished", c.DrainTimeout,
		c.SessionTimeout)
	need(c.MaxBackoff >= c.Backoff, "MaxBackoff is %s: want at least Backoff, %s", c.MaxBackoff, c.Backoff)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("subscriber configuration: %w", errors.Join(errs...))
}

func (c *Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return broker.Dialer{Timeout: c.RequestTimeout, TLS: c.TLS, Connect: c.Dial}.Dial(ctx, network, address)
}

func newDialer(c *Config) *kafka.Dialer {
	return &kafka.Dialer{ClientID: c.ClientID, DialFunc: c.dialLimited, Timeout: c.RequestTimeout, SASLMechanism: c.SASL}
}

func newTransport(c *Config) *kafka.Transport {
	return &kafka.Transport{ClientID: c.ClientID, Dial: c.dial, DialTimeout: c.RequestTimeout, SASL: c.SASL}
}

func errorLog(c *Config) kafka.Logger {
	log := c.Log.Sugar()
	return kafka.LoggerFunc(func(format string, args ...any) { log.Warnf("kafka: "+format, args...) })
}

// groupConfig sets every option of kafka-go's ConsumerGroup explicitly.
func groupConfig(c *Config) kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID:                c.Group,
		Brokers:           c.Brokers,
		Dialer:            newDialer(c),
		Topics:            []string{c.Topic},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}, kafka.RoundRobinGroupBalancer{}},
		HeartbeatInterval: c.SessionTimeout / 3,
		SessionTimeout:    c.SessionTimeout,
		// Members first finish their batches before they give up their partitions, see DrainTimeout.
		RebalanceTimeout:      max(c.SessionTimeout, c.DrainTimeout+c.RequestTimeout),
		JoinGroupBackoff:      c.Backoff,
		RetentionTime:         -time.Millisecond, // -1 ms: use the broker's offsets.retention.minutes
		WatchPartitionChanges: false,             // the number of partitions never changes, see docs/topic.md
		StartOffset:           kafka.FirstOffset, // not used: see worker.locate
		Timeout:               c.RequestTimeout,
		ErrorLogger:           errorLog(c),
	}
}

// readerConfig sets every option of kafka-go's Reader of one partition explicitly.
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
		OffsetOutOfRangeError: true, // false would silently skip expired records
		ErrorLogger:           errorLog(c),
	}
}

// reader is kafka-go's Reader. It hides most errors, and that it has connected again; reader counts both.
type reader struct {
	*kafka.Reader
	count atomic.Int64
}

func (r *reader) troubles() int64 { return r.count.Load() }

// newReader returns a reader of a partition that starts at the offset.
func newReader(c *Config, partition int, offset int64) *reader {
	r, cfg := &reader{}, readerConfig(c, partition)
	dial, log := cfg.Dialer.DialFunc, cfg.ErrorLogger
	cfg.Dialer.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		r.count.Add(1)
		return dial(ctx, network, address)
	}
	cfg.ErrorLogger = kafka.LoggerFunc(func(format string, args ...any) {
		r.count.Add(1)
		log.Printf(format, args...)
	})
	r.Reader = kafka.NewReader(cfg)
	_ = r.SetOffset(offset) // fails only on a closed reader
	return r
}

// newWriter sets every option of kafka-go's Writer explicitly. The writer may write a dead letter twice; readers can
// detect copies by the headers.
func newWriter(c *Config) *kafka.Writer {
	return &kafka.Writer{
		Addr:            kafka.TCP(c.Brokers...),
		Topic:           c.DeadLetters,
		Balancer:        &kafka.Hash{},
		MaxAttempts:     1, // writeDeadLetter repeats
		BatchSize:       1,
		BatchBytes:      maxDeadLetter,
		BatchTimeout:    time.Millisecond,
		ReadTimeout:     c.RequestTimeout,
		WriteTimeout:    c.RequestTimeout,
		RequiredAcks:    kafka.RequireAll,
		Async:           false,
		Transport:       newTransport(c),
		WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: time.Second,
		AllowAutoTopicCreation: false,
	}
}
