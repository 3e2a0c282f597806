package subscriber

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// The headers that a dead letter has besides those of its record. Group, topic, partition and offset together identify
// the dead letter: a copy of it has the same four. A copy occurs when the writer repeats, or dies before it notes it.
const (
	headerReason    = "hongbao-reason"   // one of the reasons
	headerError     = "hongbao-error"    // what went wrong, at most 1,000 bytes
	headerClass     = "hongbao-class"    // the error's class
	headerAttempts  = "hongbao-attempts" // how often it was tried
	headerGroup     = "hongbao-group"
	headerTopic     = "hongbao-topic"
	headerPartition = "hongbao-partition"
	headerOffset    = "hongbao-offset"
	headerFailed    = "hongbao-failed" // when it became a dead letter, RFC 3339
	headerCut       = "hongbao-cut"    // "value" if the record was too large for the topic and its value was left out
)

// The reasons of dead letters.
const (
	reasonMalformed = "malformed" // it claims to be a grant of this deployment and can't be read
	reasonRefused   = "refused"   // the effect failed with Permanent or Conflict
	reasonAttempts  = "attempts"  // the effect failed MaxAttempts times
	reasonTooOld    = "too_old"   // whether it had its effect is forgotten, see maxRuns
)

const (
	maxDeadLetter = 64 << 20
	maxErrorText  = 1_000
)

// letterWriter writes dead letters: *kafka.Writer.
type letterWriter interface {
	WriteMessages(ctx context.Context, msgs ...kafka.Message) error
	Close() error
}

// letter is a record that becomes a dead letter.
type letter struct {
	record   *kafka.Message
	reason   string
	err      error
	attempts int
}

func (l *letter) message(group string) kafka.Message {
	text := l.err.Error()
	headers := slices.Clone(l.record.Headers)
	for _, h := range [...][2]string{
		{headerReason, l.reason}, {headerError, text[:min(len(text), maxErrorText)]},
		{headerClass, hongbao.ClassOf(l.err).String()},
		{headerAttempts, strconv.Itoa(l.attempts)}, {headerGroup, group}, {headerTopic, l.record.Topic},
		{headerPartition, strconv.Itoa(l.record.Partition)}, {headerOffset, strconv.FormatInt(l.record.Offset, 10)},
		{headerFailed, time.Now().UTC().Format(time.RFC3339)},
	} {
		headers = append(headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
	}
	return kafka.Message{Key: l.record.Key, Value: l.record.Value, Headers: headers}
}

// bury writes the dead letter and repeats that until the topic has it or ctx ends: the partition waits until then.
func (s *session) bury(ctx context.Context, l *letter) error {
	s.cfg.Log.Error("dead letter", zap.String("reason", l.reason), zap.Error(l.err), zap.String("topic", l.record.Topic),
		zap.Int("partition", l.record.Partition), zap.Int64("offset", l.record.Offset),
		zap.String("dead_letters", s.cfg.DeadLetters))
	m := l.message(s.cfg.Group)
	for wait := newBackoff(s.cfg); ; {
		err := s.letters.WriteMessages(ctx, m)
		if err == nil {
			return nil
		}
		if tooLarge(err) && m.Value != nil {
			m.Value, m.Headers = nil, append(m.Headers, kafka.Header{Key: headerCut, Value: []byte("value")})
			continue
		}
		s.count.retries.Add(1)
		s.cfg.Log.Warn("a dead letter can't be written; Run waits, because continuing would lose the record. Does the topic exist, and "+
			"may this user write to it?",
			zap.String("dead_letters", s.cfg.DeadLetters), zap.Error(err))
		if !retry.Pause(ctx, wait.NextBackOff()) {
			return hongbao.Errorf(hongbao.ClassTransient,
				"dead letter for offset %d of partition %d of %s was not written to %s: %w",
				l.record.Offset, l.record.Partition, l.record.Topic, s.cfg.DeadLetters, err)
		}
	}
}

func tooLarge(err error) bool {
	var many kafka.WriteErrors
	if errors.As(err, &many) {
		return slices.ContainsFunc(many, tooLarge)
	}
	var large kafka.MessageTooLargeError
	return errors.As(err, &large) || errors.Is(err, kafka.MessageSizeTooLarge)
}
