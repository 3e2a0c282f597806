package hongbao

import (
	"errors"
	"fmt"
)

// Class says what the caller has to do about an error. The code that calls another system sets it once, by type or
// code and never by text.
type Class uint8

// The classes.
const (
	// ClassUnknown: it may have happened. Ask for the result, or repeat with the same id. An error without a class is
	// ClassUnknown.
	ClassUnknown Class = iota
	// ClassTransient: nothing happened. Try again.
	ClassTransient
	// ClassPermanent: it will never work. The grant becomes a dead letter.
	ClassPermanent
	// ClassConflict: it contradicts the stored data. Quarantine it and raise an alarm.
	ClassConflict
	// ClassBroken: going on would do harm. Stop this shard and call a person.
	ClassBroken
)

func (c Class) String() string {
	switch c {
	case ClassTransient:
		return "transient"
	case ClassPermanent:
		return "permanent"
	case ClassConflict:
		return "conflict"
	case ClassBroken:
		return "broken"
	case ClassUnknown:
	}
	return "unknown"
}

// Error is an error with a class.
type Error struct {
	Class Class
	// Outage marks a failure of the whole sink, not of one grant: the sink is down or unreachable. The consumer then
	// waits with all its grants and counts no attempt for any of them.
	Outage bool
	// Held marks that this grant has to wait for a reason other than its own failure. Either a live worker is pushing
	// it, or it is not known yet whether the sink refuses this grant or everything. The consumer parks the grant and
	// counts no attempt.
	Held bool
	err  error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Errorf returns an error of a class. format and args are those of fmt.Errorf.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, err: fmt.Errorf(format, args...)}
}

// Outagef returns an error with Outage set: the whole sink is down. format and args are those of fmt.Errorf.
func Outagef(c Class, format string, args ...any) error {
	return &Error{Class: c, Outage: true, err: fmt.Errorf(format, args...)}
}

// Heldf returns an error with Held set: the grant has to wait for a reason other than its own failure. format and
// args are those of fmt.Errorf.
func Heldf(format string, args ...any) error {
	return &Error{Class: ClassTransient, Held: true, err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of err: the class of the outermost Error in its chain, else ClassUnknown.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ClassUnknown
}

// IsOutage reports whether err says that the whole sink is down.
func IsOutage(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Outage
}

// IsHeld reports whether err says that the grant has to wait for a reason other than its own failure.
func IsHeld(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Held
}
