package app

import "fmt"

// UsageError is a command line or a configuration that makes no sense. Nothing was changed.
type UsageError struct{ error }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.error }

// Usage makes a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// FoundError says that the work is done, and that the answer names a problem for a person.
type FoundError struct{ error }

// Unwrap returns the cause.
func (e FoundError) Unwrap() error { return e.error }

// Found makes a FoundError.
func Found(format string, args ...any) error { return FoundError{fmt.Errorf(format, args...)} }
