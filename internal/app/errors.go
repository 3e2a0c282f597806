package app

import "fmt"

// UsageError is a command line or a configuration that makes no sense. Nothing was done.
type UsageError struct{ error }

// Unwrap gives the cause.
func (e UsageError) Unwrap() error { return e.error }

// Usage makes a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// FoundError says that the work is done, and that the answer names what a person must look at.
type FoundError struct{ error }

// Unwrap gives the cause.
func (e FoundError) Unwrap() error { return e.error }

// Found makes a FoundError.
func Found(format string, args ...any) error { return FoundError{fmt.Errorf(format, args...)} }
