package publish

import (
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// sendOutcome says what the response to a produce request means for the batch.
type sendOutcome uint8

const (
	// again: the response says nothing about the batch, or the fault is temporary. Send the same bytes again. Errors
	// that are not in the table have this outcome.
	again sendOutcome = iota
	// appended: the batch is in the log, from this request or from an earlier one.
	appended
	// lookBack: the broker can't identify the batch by its numbers, so the log must be read.
	lookBack
	// fenced: the broker has seen a higher epoch. Another worker has taken the batch over.
	fenced
	// tooMuch: the broker refuses the bytes of this batch and has appended nothing. It may accept fewer grants.
	tooMuch
	// refused: nothing was appended, and retries fail until a person changes something.
	refused
	// absent: the topic or the partition does not exist. Shortly after a start this may be temporary.
	absent
)

// outcomes has every Kafka error for which sending again is not the solution. All other Kafka errors say nothing about
// the batch: leader changes, timeouts, storage, too few replicas, loading, throttling, and errors of consumer groups,
// transactions and administration.
var outcomes = map[kafka.Error]sendOutcome{
	kafka.OutOfOrderSequenceNumber: lookBack,
	kafka.DuplicateSequenceNumber:  lookBack,
	kafka.UnknownProducerId:        lookBack,
	kafka.InvalidProducerEpoch:     fenced,
	kafka.ProducerFenced:           fenced,

	kafka.MessageSizeTooLarge: tooMuch,
	kafka.RecordListTooLarge:  tooMuch,
	kafka.InvalidRecord:       tooMuch,
	kafka.PolicyViolation:     tooMuch,

	kafka.TopicAuthorizationFailed:    refused,
	kafka.ClusterAuthorizationFailed:  refused,
	kafka.InvalidTopic:                refused,
	kafka.InvalidRequiredAcks:         refused,
	kafka.InvalidTimestamp:            refused,
	kafka.UnsupportedVersion:          refused,
	kafka.InvalidConfiguration:        refused,
	kafka.InvalidRequest:              refused,
	kafka.UnsupportedForMessageFormat: refused,
	kafka.UnsupportedCompressionType:  refused,

	kafka.UnknownTopicOrPartition: absent,
	kafka.UnknownTopicID:          absent,
	kafka.InconsistentTopicID:     absent,
}

// outcomeOf classifies the error of a request. Errors that are not Kafka error codes (network, timeout, unreadable
// response) say nothing about the batch.
func outcomeOf(err error) sendOutcome {
	if err == nil {
		return appended
	}
	var code kafka.Error
	if errors.As(err, &code) {
		return outcomes[code]
	}
	if errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) {
		return absent
	}
	return again
}
