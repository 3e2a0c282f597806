// Package topic says what a record of the Kafka topic looks like, for both of its sides: internal/sink/publish writes
// records in these words, and subscriber, tail and audit read them with DecodeMessage.
//
// DecodeMessage tells three kinds of records apart: a grant of Hongbao; a foreign record (another producer's, or a
// fence record), which is passed over; and one that claims to be a grant and contradicts itself, which nobody may pass
// over in silence.
//
// It imports the root package and kafka-go's Header, nothing else. docs/topic.md and docs/asyncapi.yaml describe the
// same for people and for other languages; tests compare them with real messages.
package topic
