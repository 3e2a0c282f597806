// Package topic defines the records of the Kafka topic, for writers and readers. internal/sinks/publish writes the
// records. Subscriber, tail and audit read them with DecodeMessage.
//
// DecodeMessage distinguishes three kinds of records. A grant of Hongbao is decoded. A foreign record (of another
// producer, or a fence record) may be ignored. A record that claims to be a grant but is malformed must not be ignored
// silently.
//
// The package imports only the root package, an internal package and the Header of kafka-go. docs/topic.md and
// docs/asyncapi.yaml describe the records for other languages; tests compare both with real messages.
package topic
