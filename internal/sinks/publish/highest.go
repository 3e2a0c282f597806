package publish

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao/topic"
)

// HighestSeq returns the highest seq of a shard among the records from since to the end of its partition, or 0 if there
// is none. The time of a record is when a worker first sent it, by that worker's clock. So the caller must subtract the
// possible clock difference from since. HighestSeq skips fence records, other shards' events and other deployments'
// records. It writes nothing.
func (l *Log) HighestSeq(ctx context.Context, shard int, since time.Time) (int64, error) {
	partition := l.Partition(shard)
	b, err := l.ends(ctx, partition)
	if err != nil {
		return 0, err
	}
	if b.start, err = l.offsetAt(ctx, partition, since, b); err != nil {
		return 0, err
	}
	var highest int64
	err = l.read(ctx, partition, b, func(r *record) error {
		e, err := topic.DecodeMessage(r.headers, r.key, r.value)
		if err != nil || e.Source != l.source || l.anothers(r) || e.Grant.Shard != shard {
			return nil //nolint:nilerr // a record that can't be read was not encoded here
		}
		highest = max(highest, e.Grant.Seq)
		return nil
	})
	return highest, err
}

// offsetAt returns the offset of the first record within b whose time is when or later. If there is none, it returns
// the end of b.
func (l *Log) offsetAt(ctx context.Context, partition int, when time.Time, b bounds) (int64, error) {
	ms := when.UnixMilli()
	if ms <= 0 { // negative times have a special meaning in Kafka
		return b.start, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	offset := b.end
	err := l.ask(ctx, "asking for the log's offset at "+when.UTC().Format(time.RFC3339), func(ctx context.Context) error {
		res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics:         map[string][]kafka.OffsetRequest{l.cfg.Topic: {{Partition: partition, Timestamp: ms}}},
			IsolationLevel: kafka.ReadUncommitted,
		})
		if err != nil {
			return err
		}
		for _, o := range res.Topics[l.cfg.Topic] {
			if o.Partition != partition {
				continue
			}
			for at := range o.Offsets {
				if at >= 0 { // -1 means that no record is young enough
					offset = max(b.start, min(at, b.end))
				}
			}
			return o.Error
		}
		return errors.New("the answer does not name the partition")
	})
	return offset, err
}
