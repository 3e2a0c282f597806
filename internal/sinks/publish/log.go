package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/broker"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Log checks and reads the topic. A Publisher contains a Log and also writes to the topic.
type Log struct {
	cfg       Config
	source    string
	transport *kafka.Transport
	client    *kafka.Client

	expiration atomic.Int64 // expiration of producer ids at the brokers, in ns
}

// NewLog returns a Log. It does not connect to the brokers. A Log does not use Worker, Campaigns and BatchGrants of the
// Config.
func NewLog(cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, source: cloudevent.SourcePrefix + cfg.Deployment, transport: newTransport(&cfg)}
	l.client = newClient(&cfg, l.transport)
	l.expiration.Store(int64(cfg.ProducerExpiration))
	return l, nil
}

// Close closes the idle connections. Call it after all calls of Handle and Scan have returned.
func (l *Log) Close() { l.transport.CloseIdleConnections() }

// Partition returns the partition that has the shard's events.
func (l *Log) Partition(shard int) int { return shard % l.cfg.Partitions }

// newTransport returns a Transport with every option set. The Transport does not retry: each call sends one request.
func newTransport(c *Config) *kafka.Transport {
	return &kafka.Transport{
		Dial:           broker.Dialer{Timeout: c.DialTimeout, TLS: c.TLS, Roots: c.Roots, Connect: c.Dial}.Dial,
		DialTimeout:    c.DialTimeout,
		IdleTimeout:    c.IdleTimeout,
		MetadataTTL:    c.MetadataTTL,
		MetadataTopics: []string{c.Topic},
		ClientID:       c.ClientID,
		TLS:            nil, // the dialer uses TLS
		SASL:           c.SASL,
		Resolver:       nil, // the dialer resolves
		Context:        context.Background(),
	}
}

func newClient(c *Config, transport kafka.RoundTripper) *kafka.Client {
	if c.Observe != nil {
		transport = &observed{transport, c.Observe}
	}
	return &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: c.RequestTimeout, Transport: transport}
}

// observed calls report after each request.
type observed struct {
	kafka.RoundTripper
	report func(request string, took time.Duration, err error)
}

// RoundTrip implements kafka.RoundTripper.
func (o *observed) RoundTrip(ctx context.Context, to net.Addr, r kafka.Request) (kafka.Response, error) {
	start := time.Now()
	answer, err := o.RoundTripper.RoundTrip(ctx, to, r)
	o.report(r.ApiKey().String(), time.Since(start), err)
	return answer, err
}

// produce sends one batch once. After an error that is not a Kafka error code, the batch may or may not be in the log.
// Even a cancelled request may have been sent.
func (l *Log) produce(ctx context.Context, partition int, raw []byte) (int64, error) {
	res, err := l.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic:        l.cfg.Topic,
		Partition:    partition,
		RequiredAcks: kafka.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: bytes.NewReader(raw)},
	})
	if err != nil {
		return -1, err
	}
	return res.BaseOffset, res.Error
}

// newProducer requests a new producer id from the broker.
func (l *Log) newProducer(ctx context.Context) (numbers, error) {
	res, err := l.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return numbers{}, err
	}
	n := numbers{producer: int64(res.Producer.ProducerID), epoch: int16(res.Producer.ProducerEpoch)}
	if n.epoch != 0 { // a higher epoch would look like a fence record's: see Fence
		err = hongbao.Errorf(hongbao.ClassBroken, "the broker assigned producer id %d with epoch %d, want 0", n.producer,
			n.epoch)
	}
	return n, err
}

// bounds are the first offset of a partition and the offset after its last record.
type bounds struct{ start, end int64 }

func (l *Log) bounds(ctx context.Context, partition int) (bounds, error) {
	res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{
			l.cfg.Topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)},
		},
		IsolationLevel: kafka.ReadUncommitted,
	})
	if err != nil {
		return bounds{}, err
	}
	for _, o := range res.Topics[l.cfg.Topic] {
		if o.Partition == partition {
			return bounds{o.FirstOffset, o.LastOffset}, o.Error
		}
	}
	return bounds{}, errors.New("the answer does not name the partition")
}

// firstPause and longestPause limit the pause between two attempts. The number of attempts is limited only by the
// context.
const firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second

// ask retries a read-only request until it succeeds, is refused, or ctx ends.
func (l *Log) ask(ctx context.Context, what string, question func(context.Context) error) error {
	for wait := retry.Backoff(firstPause, longestPause, 0); ; {
		err := question(ctx)
		if err == nil {
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken {
			return err
		}
		v := outcomeOf(err)
		if v == refused {
			return l.sinkError(what, v, err)
		}
		if !retry.Pause(ctx, wait.NextBackOff()) {
			if v == absent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return l.sinkError(what, v, err)
			}
			return hongbao.Outagef(hongbao.ClassTransient, "%s: %s: %w", what, why(err), plain(err))
		}
	}
}

// why says in words for users why a request got no usable answer.
func why(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return "kafka can't be reached"
	}
	return "no usable answer"
}

// plain removes the name of kafka-go's method from an error: it says nothing to users.
func plain(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "kafka.(*Client).") {
		return inner
	}
	return err
}

// sinkError returns a Broken error: the whole sink is refused, not one grant.
func (l *Log) sinkError(what string, v sendOutcome, err error) error {
	hint := "look at the topic's and the broker's configuration and log"
	switch {
	case v == absent:
		hint = "the topic or its partition is not there; was it deleted? See docs/kafka.md, \"When the topic went back\""
	case errors.Is(err, kafka.TopicAuthorizationFailed), errors.Is(err, kafka.ClusterAuthorizationFailed):
		hint = "allow this user WRITE, READ and DESCRIBE on the topic; the shard tries again by itself"
	case errors.Is(err, kafka.InvalidTimestamp):
		hint = "the clocks of this machine and of the broker are too far apart"
	}
	return hongbao.Errorf(hongbao.ClassBroken, "%s on topic %s: %w; %s", what, l.cfg.Topic, plain(err), hint)
}

func (l *Log) where(partition int) string {
	return fmt.Sprintf("partition %d of topic %s", partition, l.cfg.Topic)
}
