package subscriber

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// locate finds where the worker begins. A group without a committed offset is new, or was away for longer than the
// broker keeps its offsets. A Broken error means that records may be lost. Any other error means that somebody did not
// answer.
func (w *worker) locate(ctx context.Context) error {
	asked := time.Now()
	at, known, err := w.log.committed(ctx, w.partition)
	if err != nil {
		return fmt.Errorf("ask for the offset of group %s: %w", w.cfg.Group, err)
	}
	begin, end, err := w.log.ends(ctx, w.partition)
	if err != nil {
		return fmt.Errorf("ask where the log begins: %w", err)
	}
	if !known {
		if at, err = w.first(ctx, begin, end); err != nil {
			return err
		}
	}
	if at.next < begin {
		return w.expiredError(at.next, begin)
	}
	if err := w.sameLog(ctx, at.last); err != nil {
		return err
	}
	w.at, w.checked = at, asked
	if !known { // at once: a group that has read nothing is not new at its next start
		w.move(ctx)
	}
	return nil
}

// first returns where a group without a committed offset begins.
func (w *worker) first(ctx context.Context, begin, end int64) (position, error) {
	if begin == 0 { // nothing has expired
		return position{}, nil
	}
	if sink, ok := w.cfg.Sink.(positioned); ok {
		at, found, err := sink.position(ctx, w.place(w.partition))
		if err != nil || found {
			return at, err
		}
	}
	owes, err := w.owesExpired(ctx, begin, end)
	if err == nil && owes {
		err = hongbao.Errorf(hongbao.ClassBroken, "partition %d: group %s has no committed offset, and the log begins at %d: "+
			"the events before it expired, and this subscriber may have been away meanwhile. If it owes none of them, say "+
			"since when it owes events in Config.Since, or set the offsets: %w", w.partition, w.cfg.Group, begin,
			kafka.OffsetOutOfRange)
	}
	return position{next: begin}, err
}

// owesExpired reports whether expired records may be younger than Since. They are not younger than the first record of
// the log, or than now if there is none.
func (w *worker) owesExpired(ctx context.Context, begin, end int64) (bool, error) {
	since := w.cfg.Since.Add(-stream.ClockSkew)
	if since.UnixMilli() <= 0 { // not set; such numbers have a special meaning in Kafka
		return true, nil
	}
	if begin == end {
		return time.Now().After(w.cfg.Since), nil
	}
	first, err := w.log.firstSince(ctx, w.partition, since)
	return first >= 0 && first <= begin, err
}

// sameLog returns a Broken error if the log has another record at the landmark: the topic was deleted and created again,
// or a broker lost the end of the log. Nothing is known if that record has expired.
func (w *worker) sameLog(ctx context.Context, last landmark) error {
	if last.id == "" {
		return nil
	}
	m, found, err := w.log.at(ctx, w.partition, last.offset)
	switch {
	case err != nil && !errors.Is(err, kafka.OffsetOutOfRange):
		return fmt.Errorf("read the record at offset %d again: %w", last.offset, err)
	case found && header(&m, cloudevent.HeaderSource) == w.source && landmarkOf(&m) == last:
		return nil
	case !found:
		begin, end, err := w.log.ends(ctx, w.partition)
		if err != nil {
			return fmt.Errorf("ask where the log begins: %w", err)
		}
		if last.offset < begin {
			return nil
		}
		if last.offset < end { // only its leader's answer is late
			return fmt.Errorf("the broker returns no record at offset %d: %w", last.offset, kafka.Unknown)
		}
	}
	return hongbao.Errorf(hongbao.ClassBroken, "partition %d: group %s has read event %s at offset %d, and the log no longer "+
		"has it there: %w", w.partition, w.cfg.Group, last.id, last.offset, kafka.OffsetOutOfRange)
}

// trusted is how long a worker trusts a connection that shows no trouble. A reader with a full queue asks the broker
// nothing, so it would not notice that the topic was deleted, created again and filled up to its offset.
const trusted = time.Second

// checkLog calls sameLog if the reader had trouble since the last check, or if that was some time ago. Otherwise
// kafka-go's Reader would silently continue at its offset in another log.
func (w *worker) checkLog(ctx context.Context) error {
	now, troubles := time.Now(), w.reader.troubles()
	if troubles == w.troubles && now.Sub(w.checked) < trusted {
		return nil
	}
	err := w.sameLog(ctx, w.at.last)
	if err == nil {
		w.checked, w.troubles = now, troubles
	}
	return err
}

// checkGap detects records that expired before the group read them; kafka-go's Reader would silently continue behind
// them. If an offset is higher than expected, checkGap asks the broker where the log begins. A Broken error means that
// records are lost. Any other error means that the broker did not answer.
func (w *worker) checkGap(ctx context.Context, batch []kafka.Message) error {
	for i := range batch {
		offset := batch[i].Offset
		if offset > w.at.next {
			begin, _, err := w.log.ends(ctx, w.partition)
			if err != nil {
				return fmt.Errorf("ask where the log begins: %w", err)
			}
			if w.at.next < begin {
				return w.expiredError(w.at.next, begin)
			}
		}
		w.at.next = offset + 1
	}
	return nil
}

func (w *worker) expiredError(next, begin int64) error {
	return hongbao.Errorf(hongbao.ClassBroken, "partition %d: group %s has come to offset %d, and the log begins at %d: %w",
		w.partition, w.cfg.Group, next, begin, kafka.OffsetOutOfRange)
}

// insist calls a check until it is answered or ctx ends. It returns a Broken error, or the last one when ctx ended.
func (w *worker) insist(ctx context.Context, check func() error) error {
	for wait := newBackoff(w.cfg); ; {
		err := check()
		if err == nil {
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken {
			return w.offsetLostError(err)
		}
		w.count.readErrors.Add(1)
		w.cfg.Log.Warn("can't check whether events were lost unread; trying again", zap.String("topic", w.cfg.Topic),
			zap.Int("partition", w.partition), zap.Error(err))
		if !retry.Pause(ctx, wait.NextBackOff()) {
			return err
		}
	}
}

func (s *session) offsetLostError(err error) error {
	return hongbao.Errorf(hongbao.ClassBroken,
		"group %s may have missed events of topic %s: %w. Either events expired before they were read (replay them from the "+
			"ledger), or the topic was created again (see docs/kafka.md, \"When the topic went back\"). Then stop every member "+
			"and set the offsets: kafka-consumer-groups.sh --reset-offsets --to-earliest --group %s --topic %s --execute. "+
			"NewSQL drops the events that it has seen; with NewFuncSink the effect must drop them",
		s.cfg.Group, s.cfg.Topic, err, s.cfg.Group, s.cfg.Topic)
}
