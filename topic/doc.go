// Package topic defines the records of the Kafka topic for both of its sides. internal/sink/publish writes these
// records, and subscriber, tail and audit read them with DecodeMessage.
//
// DecodeMessage distinguishes three kinds of records: a grant of Hongbao; a foreign record (another producer's, or a
// fence record), which readers ignore; and a record that claims to be a grant and contradicts itself, which no reader
// may ignore silently.
//
// It imports the root package and kafka-go's Header, nothing else. docs/topic.md and docs/asyncapi.yaml describe the
// same for people and for other languages; tests compare them with real messages.
package topic
