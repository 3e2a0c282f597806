package subscriber

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

// Subscriber reads the topic as a member of a consumer group.
type Subscriber struct {
	cfg    Config
	source string
	count  counters

	// How the two clients are made; tests put faults in between.
	newReader  func(c *Config) recordReader
	newLetters func(c *Config) letterWriter
}

// recordReader is what records are read with: *kafka.Reader.
type recordReader interface {
	FetchMessage(ctx context.Context) (kafka.Message, error)
	CommitMessages(ctx context.Context, msgs ...kafka.Message) error
	Close() error
}

// New checks the configuration; nothing is asked of any server yet.
func New(cfg Config) (*Subscriber, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Subscriber{
		cfg: cfg, source: topic.SourcePrefix + cfg.Deployment,
		newReader:  func(c *Config) recordReader { return kafka.NewReader(readerConfig(c)) },
		newLetters: func(c *Config) letterWriter { return newWriter(c) },
	}, nil
}

// session is one Run.
type session struct {
	*Subscriber
	reader  recordReader
	letters letterWriter
	gaps    *gaps
}

// Run reads until ctx ends or something is Broken. When ctx ends it takes no more, finishes and commits the batch in hand within
// DrainTimeout, and leaves the group; nil means that nothing was left half done. What was left comes again to whoever gets its partition
// next, and the Sink drops what it has seen. One Run at a time; another one may follow.
func (s *Subscriber) Run(ctx context.Context) error {
	work, cancel := drain(ctx, s.cfg.DrainTimeout)
	defer cancel()
	run := &session{Subscriber: s, reader: s.newReader(&s.cfg), letters: s.newLetters(&s.cfg), gaps: newGaps(&s.cfg)}
	defer run.gaps.close()
	err := run.loop(ctx, work)
	if closed := errors.Join(run.reader.Close(), run.letters.Close()); closed != nil {
		err = errors.Join(err, fmt.Errorf("leave group %s: %w", s.cfg.Group, closed))
	}
	return err
}

// drain gives a context that ends when the time to drain after ctx's end is over.
func drain(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer = time.AfterFunc(budget, cancel)
	})
	return work, func() {
		if !stop() {
			<-ended
			timer.Stop()
		}
		cancel()
	}
}

func (s *session) loop(ctx, work context.Context) error {
	for wait := newBackoff(s.cfg); ctx.Err() == nil; {
		batch, err := s.collect(ctx)
		if len(batch) > 0 {
			if err := s.handle(work, batch); err != nil {
				return err
			}
			wait.Reset()
		}
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case errors.Is(err, kafka.OffsetOutOfRange):
			return s.wentBack(err)
		case errors.Is(err, io.EOF):
			return hongbao.Errorf(hongbao.Broken, "the reader of topic %s is closed: %w", s.cfg.Topic, err)
		}
		s.count.readErrors.Add(1)
		s.cfg.Log.Warn("reading the topic failed; it is tried again", zap.String("topic", s.cfg.Topic), zap.Error(err))
		pause(ctx, wait.NextBackOff())
	}
	return nil
}

// collect waits for a record, then for more of them until the batch is full or Linger is over. Both results may be set.
func (s *session) collect(ctx context.Context) ([]kafka.Message, error) {
	m, err := s.reader.FetchMessage(ctx)
	if err != nil {
		return nil, err
	}
	batch := []kafka.Message{m}
	short, cancel := context.WithTimeout(ctx, s.cfg.Linger)
	defer cancel()
	for len(batch) < s.cfg.BatchEvents {
		if m, err = s.reader.FetchMessage(short); err != nil {
			if short.Err() != nil && errors.Is(err, short.Err()) {
				err = nil
			}
			return batch, err
		}
		batch = append(batch, m)
	}
	return batch, nil
}

func (s *session) wentBack(err error) error {
	return hongbao.Errorf(hongbao.Broken, "topic %s does not have the offset where group %s stopped: %w. Either events expired before they were read "+
		"(replay them from the ledger), or the topic was made anew (see docs/topic.md, \"When the topic went back\"). Then stop every member and set the offsets: "+
		"kafka-consumer-groups.sh --reset-offsets --to-earliest --group %s --topic %s --execute; what was seen is dropped by (shard, seq)",
		s.cfg.Topic, s.cfg.Group, err, s.cfg.Group, s.cfg.Topic)
}

// handle has the effect of a batch and commits it.
func (s *session) handle(ctx context.Context, batch []kafka.Message) error {
	if err := s.noGap(ctx, batch); err != nil {
		return err
	}
	events, from, err := s.decode(ctx, batch)
	if err != nil {
		return err
	}
	if err := s.push(ctx, events, from); err != nil {
		return err
	}
	s.commit(ctx, batch)
	return nil
}

// decode gives the events among the records, and the record of each.
func (s *session) decode(ctx context.Context, batch []kafka.Message) (events []Event, from []*kafka.Message, err error) {
	for i := range batch {
		m := &batch[i]
		e, err := topic.DecodeMessage(m.Headers, m.Key, m.Value)
		switch {
		case errors.Is(err, topic.ErrForeign) && header(m, topic.HeaderType) == topic.TypeFence:
			s.count.fences.Add(1)
		case errors.Is(err, topic.ErrForeign) || header(m, topic.HeaderSource) != s.source:
			s.count.foreign.Add(1)
		case err != nil:
			if err := s.bury(ctx, &letter{record: m, reason: ReasonMalformed, err: err}); err != nil {
				return nil, nil, err
			}
			s.count.malformed.Add(1)
		default:
			events, from = append(events, e), append(from, m)
		}
	}
	return events, from, nil
}

// header is the last value of a header, as DecodeMessage takes it; "" if there is none.
func header(m *kafka.Message, name string) (value string) {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			value = string(m.Headers[i].Value)
		}
	}
	return value
}

// push hands the events to the sink until all are dealt with. from are their records.
func (s *session) push(ctx context.Context, events []Event, from []*kafka.Message) error {
	attempts := 0
	for wait := newBackoff(s.cfg); len(events) > 0; {
		r, err := s.cfg.Sink.Push(ctx, events)
		if err := s.note(ctx, r, from); err != nil {
			return err
		}
		if r.Next > 0 {
			events, from, attempts = events[r.Next:], from[r.Next:], 0
			wait.Reset()
		}
		class := hongbao.ClassOf(err)
		switch {
		case err == nil && r.Next > 0:
			continue
		case err == nil || class == hongbao.Broken:
			return hongbao.Errorf(hongbao.Broken, "the sink of group %s can't go on: %w", s.cfg.Group, cmp.Or(err, errIdle))
		case ctx.Err() != nil: // which may be all that is wrong
			return unfinished(len(events), err)
		case hongbao.IsOutage(err):
			s.cfg.Log.Warn("the sink is down; it is tried again, and no event is to blame", zap.Error(err))
		case len(events) > 1: // who of them is it?
			half := len(events) / 2
			if err := s.push(ctx, events[:half], from[:half]); err != nil {
				return err
			}
			events, from = events[half:], from[half:]
			continue
		default:
			attempts++
			if refused := class == hongbao.Permanent || class == hongbao.Conflict; refused || attempts >= s.cfg.MaxAttempts {
				return s.refuse(ctx, &events[0], &letter{record: from[0], reason: reasonOf(refused), err: err, attempts: attempts})
			}
		}
		s.count.retries.Add(1)
		if !pause(ctx, wait.NextBackOff()) {
			return unfinished(len(events), err)
		}
	}
	return nil
}

func unfinished(n int, err error) error {
	return hongbao.Errorf(hongbao.Transient, "%d events were not dealt with when the time to drain was over; they come again: %w", n, err)
}

var errIdle = errors.New("it dealt with nothing and gave no error")

func reasonOf(refused bool) string {
	if refused {
		return ReasonRefused
	}
	return ReasonAttempts
}

var errTooOld = errors.New("it lies below the oldest hole that the position remembers, so it can't be told whether it had its effect")

// note counts what a Push did, and buries what it could not judge.
func (s *session) note(ctx context.Context, r Report, from []*kafka.Message) error {
	s.count.done.Add(int64(r.Done))
	s.count.repeated.Add(int64(r.Repeated))
	for _, i := range r.TooOld {
		if err := s.bury(ctx, &letter{record: from[i], reason: ReasonTooOld, err: errTooOld}); err != nil {
			return err
		}
		s.count.tooOld.Add(1)
	}
	return nil
}

// refuse makes a dead letter of an event and has the sink remember it, so that the position moves on. Whoever dies between the two writes
// the dead letter again.
func (s *session) refuse(ctx context.Context, e *Event, l *letter) error {
	if err := s.bury(ctx, l); err != nil {
		return err
	}
	s.count.refused.Add(1)
	for wait := newBackoff(s.cfg); ; {
		err := s.cfg.Sink.Skip(ctx, *e)
		if err == nil {
			return nil
		}
		s.count.retries.Add(1)
		s.cfg.Log.Warn("that an event is a dead letter can't be noted; it is tried again", zap.String("event", e.Grant.EventID()), zap.Error(err))
		if hongbao.ClassOf(err) == hongbao.Broken || !pause(ctx, wait.NextBackOff()) {
			return fmt.Errorf("event %s is a dead letter in %s, and that can't be noted: %w", e.Grant.EventID(), s.cfg.DeadLetters, err)
		}
	}
}

// commit moves the group's offsets behind the batch. A commit that can't be had is given up: the batch had its effect, so
// a repeat is dropped, and the next commit covers it. After a rebalance it may set another member's offset back, which means a repeat
// too, and never forward over what nobody did.
func (s *session) commit(ctx context.Context, batch []kafka.Message) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
	defer cancel()
	err := backoff.Retry(func() error { return s.reader.CommitMessages(ctx, batch...) }, backoff.WithContext(newBackoff(s.cfg), ctx))
	if err == nil {
		s.count.commits.Add(1)
		return
	}
	s.count.commitErrors.Add(1)
	s.cfg.Log.Warn("the offsets were not committed; the next commit covers them", zap.String("group", s.cfg.Group), zap.Error(err))
}

// newBackoff waits from Backoff to MaxBackoff, with jitter and without end.
func newBackoff(c Config) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.Backoff),
		backoff.WithRandomizationFactor(0.3),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(c.MaxBackoff),
		backoff.WithMaxElapsedTime(0),
	)
}

// pause waits; it tells whether ctx still lives after it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
