package subscriber

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

// logClient asks the broker about the topic and about the group's offsets, and commits them.
type logClient struct {
	client    *kafka.Client
	transport *kafka.Transport
	group     string
	topic     string
}

func newLogClient(c *Config) *logClient {
	tr := newTransport(c)
	return &logClient{
		client: &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: c.RequestTimeout, Transport: tr}, transport: tr,
		group: c.Group, topic: c.Topic,
	}
}

func (l *logClient) close() { l.transport.CloseIdleConnections() }

// exists returns nil if the topic exists. It never makes the broker create the topic.
func (l *logClient) exists(ctx context.Context) error {
	res, err := l.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{l.topic}})
	if err != nil {
		return err
	}
	for i := range res.Topics {
		if t := &res.Topics[i]; t.Name == l.topic && (t.Error != nil || len(t.Partitions) > 0) {
			return t.Error
		}
	}
	return kafka.UnknownTopicOrPartition
}

// ends returns the first offset of a partition, and the offset after its last record.
func (l *logClient) ends(ctx context.Context, partition int) (begin, end int64, err error) {
	p, err := l.offsets(ctx, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return p.FirstOffset, p.LastOffset, err
}

// firstSince returns the offset of the first record with this time or a later one; -1 if there is none.
func (l *logClient) firstSince(ctx context.Context, partition int, since time.Time) (int64, error) {
	p, err := l.offsets(ctx, kafka.TimeOffsetOf(partition, since))
	for offset := range p.Offsets {
		return offset, err
	}
	return -1, err
}

// offsets makes requests for one partition.
func (l *logClient) offsets(ctx context.Context, ask ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{l.topic: ask}})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	for _, p := range res.Topics[l.topic] {
		if p.Partition == ask[0].Partition {
			return p, p.Error
		}
	}
	return kafka.PartitionOffsets{}, errNoAnswer
}

var errNoAnswer = fmt.Errorf("the answer does not name the partition: %w", kafka.Unknown)

// committed returns the group's position; false if it has none.
func (l *logClient) committed(ctx context.Context, partition int) (at position, ok bool, err error) {
	res, err := l.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: l.group,
		Topics: map[string][]int{l.topic: {partition}}})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return at, false, err
	}
	for _, p := range res.Topics[l.topic] {
		if p.Partition == partition {
			return position{p.CommittedOffset, parseLandmark(p.Metadata)}, p.CommittedOffset >= 0, p.Error
		}
	}
	return at, false, errNoAnswer
}

// commit commits the group's position. The generation's own method has no metadata.
func (l *logClient) commit(gen *kafka.Generation, partition int, at position) error {
	res, err := l.client.OffsetCommit(context.Background(), &kafka.OffsetCommitRequest{
		GroupID: gen.GroupID, GenerationID: int(gen.ID), MemberID: gen.MemberID,
		Topics: map[string][]kafka.OffsetCommit{
			l.topic: {{Partition: partition, Offset: at.next, Metadata: at.last.String()}},
		},
	})
	if err != nil {
		return err
	}
	for _, p := range res.Topics[l.topic] {
		if p.Partition == partition {
			return p.Error
		}
	}
	return errNoAnswer
}

// at returns the record with the offset; false if the broker returns none there. The broker sends a whole batch even if
// it is larger than MaxBytes, but no second one.
func (l *logClient) at(ctx context.Context, partition int, offset int64) (m kafka.Message, ok bool, err error) {
	res, err := l.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: l.topic, Partition: partition, Offset: offset,
		MinBytes: 1, MaxBytes: 1, MaxWait: 100 * time.Millisecond, IsolationLevel: kafka.ReadUncommitted,
	})
	if err == nil {
		err = res.Error
	}
	for err == nil {
		var r *kafka.Record
		if r, err = res.Records.ReadRecord(); err == nil && r.Offset >= offset {
			return kafka.Message{Offset: r.Offset, Time: r.Time, Headers: r.Headers}, r.Offset == offset, nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return m, false, err
}
