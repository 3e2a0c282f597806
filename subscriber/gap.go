package subscriber

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// gaps notices events that expired before they were read: kafka-go's Reader goes on at the log's new beginning and says
// nothing. Where offsets jump, and at the first record of a partition, the broker is asked where the log begins.
type gaps struct {
	client       *kafka.Client
	transport    *kafka.Transport
	topic, group string
	next         map[int]int64 // partition to the offset that should come next
}

func newGaps(c *Config) *gaps {
	tr := &kafka.Transport{ClientID: c.ClientID, DialTimeout: c.RequestTimeout, TLS: c.TLS, SASL: c.SASL}
	return &gaps{
		client: &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: c.RequestTimeout, Transport: tr}, transport: tr,
		topic: c.Topic, group: c.Group, next: map[int]int64{},
	}
}

func (g *gaps) close() { g.transport.CloseIdleConnections() }

// check looks at a batch before it is handled. A Broken error says that events are missing; with any other one nothing is known yet.
func (g *gaps) check(ctx context.Context, batch []kafka.Message) error {
	for i := range batch {
		m := &batch[i]
		next, known := g.next[m.Partition]
		if !known {
			next = -1
		}
		if !known || m.Offset > next {
			if err := g.ask(ctx, m.Partition, next); err != nil {
				return err
			}
		}
		g.next[m.Partition] = m.Offset + 1
	}
	return nil
}

// ask compares where the log of a partition begins with how far the group has come.
func (g *gaps) ask(ctx context.Context, partition int, next int64) error {
	committed, err := g.committed(ctx, partition)
	if err != nil {
		return fmt.Errorf("ask how far group %s has come in partition %d of %s: %w", g.group, partition, g.topic, err)
	}
	begin, err := g.begin(ctx, partition)
	if err != nil {
		return fmt.Errorf("ask where partition %d of %s begins: %w", partition, g.topic, err)
	}
	if reached := max(next, committed); reached >= 0 && reached < begin {
		return hongbao.Errorf(hongbao.Broken, "partition %d: group %s has come to offset %d, and the log begins at %d: %w",
			partition, g.group, reached, begin, kafka.OffsetOutOfRange)
	}
	return nil
}

// committed is -1 for a group that is new to the partition.
func (g *gaps) committed(ctx context.Context, partition int) (int64, error) {
	res, err := g.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g.group, Topics: map[string][]int{g.topic: {partition}}})
	if err != nil {
		return 0, err
	}
	if errors.Is(res.Error, kafka.GroupIdNotFound) {
		return -1, nil
	}
	for _, p := range res.Topics[g.topic] {
		if p.Partition == partition && res.Error == nil {
			return p.CommittedOffset, p.Error
		}
	}
	return 0, fmt.Errorf("the answer has no offset: %w", cmp.Or[error](res.Error, kafka.Unknown))
}

func (g *gaps) begin(ctx context.Context, partition int) (int64, error) {
	res, err := g.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{g.topic: {kafka.FirstOffsetOf(partition)}},
	})
	if err != nil {
		return 0, err
	}
	for _, p := range res.Topics[g.topic] {
		if p.Partition == partition {
			return p.FirstOffset, p.Error
		}
	}
	return 0, fmt.Errorf("the answer has no offset: %w", kafka.Unknown)
}

// noGap asks until it knows, or ctx ends.
func (s *session) noGap(ctx context.Context, batch []kafka.Message) error {
	for wait := newBackoff(s.cfg); ; {
		err := s.gaps.check(ctx, batch)
		if err == nil {
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.Broken {
			return s.wentBack(err)
		}
		s.count.readErrors.Add(1)
		s.cfg.Log.Warn("it can't be told whether events expired unread; it is tried again", zap.Error(err))
		if !pause(ctx, wait.NextBackOff()) {
			return unfinished(len(batch), err)
		}
	}
}
