package publish

import (
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// verdict is what a response to a produce request means for the batch.
type verdict uint8

const (
	// again: not decided, or only temporarily. The same bytes are sent again. Errors that are not in the table have
	// this verdict.
	again verdict = iota
	// appended: the batch is in the log, by this request or by an earlier one.
	appended
	// lookBack: the broker can't decide by the numbers, so the log must be read.
	lookBack
	// fenced: a higher epoch was seen. Another worker took the batch over.
	fenced
	// tooMuch: nothing was appended, because of the bytes of this batch: fewer grants may be accepted.
	tooMuch
	// refused: nothing was appended, and nothing will be until a person changes something.
	refused
	// absent: the topic or the partition does not exist. This may be temporary just after a start.
	absent
)

// verdicts classifies every Kafka error that sending again does not solve. The rest of Kafka's table decides nothing
// about this batch: leaders moving, timeouts, storage, too few replicas, loading, throttling, and the errors of groups,
// transactions and administration.
var verdicts = map[kafka.Error]verdict{
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

// verdictOf classifies an error of a request. Errors that are not Kafka's own (network, time-outs, an unreadable
// response) decide nothing.
func verdictOf(err error) verdict {
	if err == nil {
		return appended
	}
	var code kafka.Error
	if errors.As(err, &code) {
		return verdicts[code]
	}
	if errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) {
		return absent
	}
	return again
}
