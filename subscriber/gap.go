package subscriber

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// logClient reads where the log of a partition begins.
type logClient struct {
	client    *kafka.Client
	transport *kafka.Transport
	topic     string
}

func newLogClient(c *Config) *logClient {
	tr := &kafka.Transport{ClientID: c.ClientID, DialTimeout: c.RequestTimeout, TLS: c.TLS, SASL: c.SASL}
	return &logClient{
		client: &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: c.RequestTimeout, Transport: tr}, transport: tr,
		topic: c.Topic,
	}
}

func (l *logClient) close() { l.transport.CloseIdleConnections() }

func (l *logClient) begin(ctx context.Context, partition int) (int64, error) {
	res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{l.topic: {kafka.FirstOffsetOf(partition)}},
	})
	if err != nil {
		return 0, err
	}
	for _, p := range res.Topics[l.topic] {
		if p.Partition == partition {
			return p.FirstOffset, p.Error
		}
	}
	return 0, fmt.Errorf("the answer has no offset: %w", kafka.Unknown)
}

// checkGap notices events that expired before they were read: kafka-go's Reader silently continues at the log's new
// beginning. Where offsets jump, checkGap asks the broker where the log begins. A Broken error says that events are
// missing; with any other error the answer is unknown. A group that is new to the partition can't miss anything.
func (w *worker) checkGap(ctx context.Context, batch []kafka.Message) error {
	for i := range batch {
		offset := batch[i].Offset
		if w.next >= 0 && offset > w.next {
			begin, err := w.log.begin(ctx, w.partition)
			if err != nil {
				return fmt.Errorf("ask where partition %d of %s begins: %w", w.partition, w.cfg.Topic, err)
			}
			if w.next < begin {
				return hongbao.Errorf(hongbao.ClassBroken,
					"partition %d: group %s has come to offset %d, and the log begins at %d: %w",
					w.partition, w.cfg.Group, w.next, begin, kafka.OffsetOutOfRange)
			}
		}
		w.next = offset + 1
	}
	return nil
}

// noGap repeats checkGap until the answer is known, or ctx ends.
func (w *worker) noGap(ctx context.Context, batch []kafka.Message) error {
	for wait := newBackoff(w.cfg); ; {
		err := w.checkGap(ctx, batch)
		if err == nil {
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken {
			return w.wentBack(err)
		}
		w.count.readErrors.Add(1)
		w.cfg.Log.Warn("it is unknown whether events expired unread; it is tried again", zap.Error(err))
		if !retry.Pause(ctx, wait.NextBackOff()) {
			return unfinished(len(batch), err)
		}
	}
}
