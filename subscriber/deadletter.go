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

// These headers of a dead letter are added to the headers of its record. Group, topic, partition and offset together
// identify a dead letter. A dead letter may be written twice, if a write is retried or if the process dies before it
// has recorded the write.
const (
	headerReason    = "hongbao-reason"   // one of the reasons below
	headerError     = "hongbao-error"    // the error, at most 1,000 bytes
	headerClass     = "hongbao-class"    // the error's class
	headerAttempts  = "hongbao-attempts" // number of attempts
	headerGroup     = "hongbao-group"
	headerTopic     = "hongbao-topic"
	headerPartition = "hongbao-partition"
	headerOffset    = "hongbao-offset"
	headerFailed    = "hongbao-failed" // time of the dead letter, RFC 3339
	headerCut       = "hongbao-cut"    // "value" if the value was left out because the record was too large
)

// The reasons of dead letters.
const (
	reasonMalformed = "malformed" // the headers claim a grant of this deployment, but the record is malformed
	reasonRefused   = "refused"   // the effect failed with Permanent or Conflict
	reasonAttempts  = "attempts"  // the effect failed MaxAttempts times
)

const (
	maxDeadLetter = 64 << 20
	maxErrorText  = 1_000
)

// letterWriter writes dead letters. *kafka.Writer implements it.
type letterWriter interface {
	WriteMessages(ctx context.Context, msgs ...kafka.Message) error
	Close() error
}

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

// writeDeadLetter writes the dead letter, and retries until the write succeeds or ctx ends. The partition waits
// meanwhile.
func (s *session) writeDeadLetter(ctx context.Context, l *letter) error {
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
		s.cfg.Log.Warn(
			"a dead letter can't be written; its partition waits, or the record would be lost. Does the topic exist, and "+
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
