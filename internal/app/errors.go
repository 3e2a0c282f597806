package app

import "fmt"

// UsageError reports an invalid command line, request or configuration. Nothing was changed.
type UsageError struct{ error }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.error }

// Usage returns a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// FoundError means that the work is complete, but a person must look at a problem in the result.
type FoundError struct{ error }

// Unwrap returns the cause.
func (e FoundError) Unwrap() error { return e.error }

// Found returns a FoundError.
func Found(format string, args ...any) error { return FoundError{fmt.Errorf(format, args...)} }
