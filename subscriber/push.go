package subscriber

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/topic"
)

// push gives the events to the sink until all of them are handled. from has the records of the events.
func (s *session) push(ctx context.Context, events []topic.Event, from []*kafka.Message) error {
	attempts := 0
	for wait := newBackoff(s.cfg); len(events) > 0; {
		r, err := s.pushOnce(ctx, events, from[len(events)-1])
		s.count.done.Add(int64(r.Done))
		s.count.repeated.Add(int64(r.Repeated))
		if r.Next > 0 {
			events, from, attempts = events[r.Next:], from[r.Next:], 0
			wait.Reset()
		}
		class := hongbao.ClassOf(err)
		switch {
		case err == nil && r.Next > 0:
			continue
		case err == nil || class == hongbao.ClassBroken:
			return hongbao.Errorf(hongbao.ClassBroken, "the sink of group %s can't continue: %w", s.cfg.Group, cmp.Or(err, errIdle))
		case ctx.Err() != nil: // the error may only come from the end of ctx
			return unfinished(len(events), err)
		case hongbao.IsOutage(err):
			s.cfg.Log.Warn("the sink is down; trying again, and no event loses an attempt", zap.Error(err))
		case len(events) > 1: // retry both halves, to find the failing event
			half := len(events) / 2
			if err := s.push(ctx, events[:half], from[:half]); err != nil {
				return err
			}
			events, from = events[half:], from[half:]
			continue
		default:
			attempts++
			if refused := class == hongbao.ClassPermanent || class == hongbao.ClassConflict; refused ||
				attempts >= s.cfg.MaxAttempts {
				return s.refuse(ctx, &events[0], &letter{record: from[0], reason: reasonOf(refused), err: err, attempts: attempts})
			}
		}
		s.count.retries.Add(1)
		if !retry.Pause(ctx, wait.NextBackOff()) {
			return unfinished(len(events), err)
		}
	}
	return nil
}

// pushOnce calls the sink. last is the record of the last event. If the sink panics, the call has failed; otherwise the process would end, and again after each
// restart.
func (s *session) pushOnce(ctx context.Context, events []topic.Event, last *kafka.Message) (r Report, err error) {
	defer func() { s.logPanic(err) }()
	defer recovered(&err)
	if sink, ok := s.cfg.Sink.(positioned); ok {
		return sink.pushAt(ctx, events, s.place(last.Partition), position{next: last.Offset + 1, last: landmarkOf(last)})
	}
	return s.cfg.Sink.Push(ctx, events)
}

func (s *session) skip(ctx context.Context, e *topic.Event) (err error) {
	defer func() { s.logPanic(err) }()
	defer recovered(&err)
	return s.cfg.Sink.Skip(ctx, *e)
}

func (s *session) logPanic(err error) {
	if p := (*panicError)(nil); errors.As(err, &p) {
		s.cfg.Log.Error("the sink panicked", zap.String("code", "handler_panicked"), zap.Any("panic", p.value),
			zap.ByteString("stack", p.stack))
	}
}

// panicError is a panic of a sink or of its effect.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("the effect panicked: %v", p.value) }

// recovered turns a panic into an error. It must be deferred itself.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{p, debug.Stack()}
	}
}

func unfinished(n int, err error) error {
	return hongbao.Errorf(hongbao.ClassTransient,
		"%d events were not handled when the drain time was over; they will come again: %w", n, err)
}

var errIdle = errors.New("the sink handled no event and returned no error")

func reasonOf(refused bool) string {
	if refused {
		return reasonRefused
	}
	return reasonAttempts
}

// refuse makes a dead letter of an event, and then tells the sink to skip the event. If the process dies in between,
// the dead letter is written again.
func (s *session) refuse(ctx context.Context, e *topic.Event, l *letter) error {
	if err := s.writeDeadLetter(ctx, l); err != nil {
		return err
	}
	s.count.refused.Add(1)
	for wait := newBackoff(s.cfg); ; {
		err := s.skip(ctx, e)
		if err == nil {
			return nil
		}
		s.count.retries.Add(1)
		s.cfg.Log.Warn("could not record that an event is a dead letter; trying again",
			zap.String("event", e.Grant.EventID()), zap.Error(err))
		if hongbao.ClassOf(err) == hongbao.ClassBroken || !retry.Pause(ctx, wait.NextBackOff()) {
			return fmt.Errorf("event %s is a dead letter in %s, but the sink could not record this: %w", e.Grant.EventID(),
				s.cfg.DeadLetters, err)
		}
	}
}
