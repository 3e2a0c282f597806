package subscriber

import (
	"context"
	"errors"
	"io"

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
	next      int64 // the expected next offset; negative if no offset is known
}

// work reads a partition until ctx, the generation, ends. Then it finishes the current batch within DrainTimeout, or
// abandons it.
func (s *session) work(run, ctx context.Context, gen *kafka.Generation, a kafka.PartitionAssignment) error {
	w := &worker{session: s, gen: gen, partition: a.ID, reader: s.newReader(&s.cfg, a.ID, a.Offset), next: a.Offset}
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

func (s *session) offsetLostError(err error) error {
	return hongbao.Errorf(hongbao.ClassBroken,
		"topic %s does not have the offset where group %s stopped: %w. Either events expired before they were read (replay "+
			"them from the ledger), or the topic was created again (see docs/kafka.md, \"When the topic went back\"). Stop "+
			"every member and set the offsets: kafka-consumer-groups.sh --reset-offsets --to-earliest --group %s --topic %s "+
			"--execute. NewSQL drops the events that it has seen; with NewFuncSink the effect must drop them",
		s.cfg.Topic, s.cfg.Group, err, s.cfg.Group, s.cfg.Topic)
}

// handle runs the effects of a batch and commits its offset. own limits the time for the effects.
func (w *worker) handle(ctx, own context.Context, batch []kafka.Message) error {
	if err := w.noGap(own, batch); err != nil {
		return err
	}
	events, from, err := w.decode(own, batch)
	if err != nil {
		return err
	}
	if err := w.push(own, events, from); err != nil {
		return err
	}
	w.move(ctx, batch[len(batch)-1].Offset+1)
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
func (w *worker) move(ctx context.Context, next int64) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.CommitTimeout)
	defer cancel()
	commit := func() error { return w.commit(w.gen, w.partition, next) }
	err := backoff.Retry(commit, backoff.WithContext(newBackoff(w.cfg), ctx))
	if err == nil {
		w.count.commits.Add(1)
		return
	}
	w.count.commitErrors.Add(1)
	w.cfg.Log.Warn("the offset was not committed; the next commit includes it", zap.String("group", w.cfg.Group),
		zap.Int("partition", w.partition), zap.Error(err))
}
