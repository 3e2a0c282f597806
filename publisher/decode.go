package publisher

import (
	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao/topic"
)

// Event is a grant as the topic tells it.
type Event = topic.Event

// ErrForeign says that a record is not a grant of Hongbao: another producer's, or a fence record. Pass over it.
var ErrForeign = topic.ErrForeign

// DecodeMessage reads a record of the topic; it is topic.DecodeMessage.
func DecodeMessage(headers []kafka.Header, key, value []byte) (Event, error) {
	return topic.DecodeMessage(headers, key, value)
}
