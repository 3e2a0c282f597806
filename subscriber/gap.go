package subscriber

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// logClient asks the broker whether the topic exists and where the logs of its partitions begin.
type logClient struct {
	client    *kafka.Client
	transport *kafka.Transport
	topic     string
}

func newLogClient(c *Config) *logClient {
	tr := newTransport(c)
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

// checkGap detects records that expired before the group read them; kafka-go's Reader would silently continue behind
// them. If an offset is higher than expected, checkGap asks the broker where the log begins. A Broken error means that
// records are lost. Any other error means that the broker did not answer. A group that reads the partition for the
// first time has lost nothing.
func (w *worker) checkGap(ctx context.Context, batch []kafka.Message) error {
	for i := range batch {
		offset := batch[i].Offset
		if w.next >= 0 && offset > w.next {
			begin, err := w.log.begin(ctx, w.partition)
			if err != nil {
				return fmt.Errorf("ask where the log of partition %d of %s begins: %w", w.partition, w.cfg.Topic, err)
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

// noGap calls checkGap until the broker answers or ctx ends.
func (w *worker) noGap(ctx context.Context, batch []kafka.Message) error {
	for wait := newBackoff(w.cfg); ; {
		err := w.checkGap(ctx, batch)
		if err == nil {
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken {
			return w.offsetLostError(err)
		}
		w.count.readErrors.Add(1)
		w.cfg.Log.Warn("can't check whether events expired unread; trying again", zap.Error(err))
		if !retry.Pause(ctx, wait.NextBackOff()) {
			return unfinished(len(batch), err)
		}
	}
}
