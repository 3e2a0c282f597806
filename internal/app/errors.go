package app

import "fmt"

// UsageError reports an invalid command line, request or configuration. Nothing was changed.
type UsageError struct{ error }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.error }

// Usage returns a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AttentionError means that the work is complete, but a person must look at a problem in the result.
type AttentionError struct{ error }

// Unwrap returns the cause.
func (e AttentionError) Unwrap() error { return e.error }

// NeedsAttention returns an AttentionError.
func NeedsAttention(format string, args ...any) error {
	return AttentionError{fmt.Errorf(format, args...)}
}

// TopicError is an error of reading the topic, and not of Redis or the ledger.
type TopicError struct{ error }

// OfTopic returns a TopicError.
func OfTopic(err error) error { return TopicError{err} }

// Unwrap returns the cause.
func (e TopicError) Unwrap() error { return e.error }
