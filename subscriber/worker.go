package subscriber

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/topic"
)

// worker reads one partition while it is assigned to this member. A slow or failing event does not delay other
// partitions.
type worker struct {
	*session
	gen       *kafka.Generation
	partition int
	reader    recordReader
	at        position  // after the last record that was read
	checked   time.Time // when sameLog last accepted the log
	troubles  int64     // the reader's troubles until then
}

// work reads a partition until ctx, the generation, ends. Then it finishes the current batch within DrainTimeout, or
// abandons it.
func (s *session) work(run, ctx context.Context, gen *kafka.Generation, partition int) error {
	w := &worker{session: s, gen: gen, partition: partition}
	if err := w.insist(ctx, func() error { return w.locate(ctx) }); err != nil {
		if ctx.Err() != nil && hongbao.ClassOf(err) != hongbao.ClassBroken {
			return nil // nothing was begun
		}
		return err
	}
	w.reader = s.newReader(&s.cfg, partition, w.at.next)
	own, cancel := drain(ctx, s.cfg.DrainTimeout)
	defer cancel()
	return errors.Join(w.loop(run, ctx, own), w.reader.Close())
}

// loop begins no batch after run has ended. ctx ends a little later, once the group is left.
func (w *worker) loop(run, ctx, own context.Context) error {
	for wait := newBackoff(w.cfg); run.Err() == nil && ctx.Err() == nil; {
		batch, err := w.collect(ctx)
		if len(batch) > 0 {
			if err := w.handle(ctx, own, batch); err != nil {
				return err
			}
			wait.Reset()
		}
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case errors.Is(err, kafka.OffsetOutOfRange):
			return w.offsetLostError(err)
		case errors.Is(err, io.EOF):
			return hongbao.Errorf(hongbao.ClassBroken, "the reader of topic %s is closed: %w", w.cfg.Topic, err)
		}
		w.count.readErrors.Add(1)
		w.cfg.Log.Warn("reading the topic failed; trying again", zap.String("topic", w.cfg.Topic), zap.Error(err))
		retry.Pause(ctx, wait.NextBackOff())
	}
	return nil
}

// collect waits for a record, and then for more records until the batch is full or Linger is over. It may return
// records together with an error.
func (w *worker) collect(ctx context.Context) ([]kafka.Message, error) {
	m, err := w.reader.FetchMessage(ctx)
	if err != nil {
		return nil, err
	}
	batch := []kafka.Message{m}
	short, cancel := context.WithTimeout(ctx, w.cfg.Linger)
	defer cancel()
	for len(batch) < w.cfg.BatchEvents {
		if m, err = w.reader.FetchMessage(short); err != nil {
			if short.Err() != nil && errors.Is(err, short.Err()) {
				err = nil
			}
			return batch, err
		}
		batch = append(batch, m)
	}
	return batch, nil
}

// handle runs the effects of a batch and commits its offset. own limits the time for the effects.
func (w *worker) handle(ctx, own context.Context, batch []kafka.Message) error {
	err := w.insist(own, func() error {
		if err := w.checkLog(own); err != nil {
			return err
		}
		return w.checkGap(own, batch)
	})
	if err != nil && hongbao.ClassOf(err) != hongbao.ClassBroken {
		return unfinished(len(batch), err)
	}
	if err != nil {
		return err
	}
	events, from, err := w.decode(own, batch)
	if err != nil {
		return err
	}
	if err := w.push(own, events, from); err != nil {
		return err
	}
	w.at.last = w.lastOf(batch)
	w.move(ctx)
	return nil
}

// decode returns the events in the batch, and the record of each event. It counts foreign records and makes dead
// letters of malformed records.
func (s *session) decode(ctx context.Context, batch []kafka.Message) (events []topic.Event, from []*kafka.Message,
	err error) {
	for i := range batch {
		m := &batch[i]
		e, err := topic.DecodeMessage(m.Headers, m.Key, m.Value)
		switch {
		case errors.Is(err, topic.ErrForeign) && header(m, cloudevent.HeaderType) == cloudevent.TypeFence:
			s.count.fences.Add(1)
		case errors.Is(err, topic.ErrForeign) || header(m, cloudevent.HeaderSource) != s.source:
			s.count.foreign.Add(1)
		case err != nil:
			if err := s.writeDeadLetter(ctx, &letter{record: m, reason: reasonMalformed, err: err}); err != nil {
				return nil, nil, err
			}
			s.count.malformed.Add(1)
		default:
			events, from = append(events, e), append(from, m)
		}
	}
	return events, from, nil
}

// lastOf returns the last landmark in a batch, or the one before it. A fence is one, too: a group that has read nothing
// else would skip the first events of another log.
func (w *worker) lastOf(batch []kafka.Message) landmark {
	for i := len(batch) - 1; i >= 0; i-- {
		if l := landmarkOf(&batch[i]); l.id != "" && header(&batch[i], cloudevent.HeaderSource) == w.source {
			return l
		}
	}
	return w.at.last
}

// header returns the last value of a header, like DecodeMessage, or "" if there is none.
func header(m *kafka.Message, name string) (value string) {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			value = string(m.Headers[i].Value)
		}
	}
	return value
}

// move commits the group's offset. It gives up if the commit fails for CommitTimeout: the next commit includes this
// one, and if the batch is read again, its events are dropped. After the end of ctx the partition may move at any
// time, so there is only one try.
func (w *worker) move(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.CommitTimeout)
	defer cancel()
	commit := func() error { return w.commit(w.gen, w.partition, w.at) }
	err := backoff.Retry(commit, backoff.WithContext(newBackoff(w.cfg), ctx))
	if err == nil {
		w.count.commits.Add(1)
		return
	}
	w.count.commitErrors.Add(1)
	w.cfg.Log.Warn("the offset was not committed; the next commit includes it", zap.String("group", w.cfg.Group),
		zap.Int("partition", w.partition), zap.Error(err))
}
