package hongbao

import (
	"errors"
	"fmt"
)

// Class says what an error means for the caller. The code that calls another system sets the class once, by the type
// or code of the error and never by its text.
type Class uint8

// The classes.
const (
	// ClassUnknown: the operation may have happened. Ask for the result, or retry with the same id. Errors without a
	// class are ClassUnknown.
	ClassUnknown Class = iota
	// ClassTransient: nothing happened. Retry.
	ClassTransient
	// ClassPermanent: the operation can never succeed. A grant becomes a dead letter.
	ClassPermanent
	// ClassConflict: the request contradicts stored data. Quarantine the grant and raise an alarm.
	ClassConflict
	// ClassBroken: going on could do harm. Stop this shard, and let a person look.
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
	// waits with all its grants, and no grant loses an attempt.
	Outage bool
	// Waiting means that the grant must wait, but has not failed itself. For example, another live worker is pushing it,
	// or it is not yet known whether the sink rejects only this grant or all grants. The consumer parks the grant,
	// which loses no attempt.
	Waiting bool
	// Undecided means that only a person can find out whether the operation happened, and that many grants may share
	// this one question. For example, they were sent in one batch. A consumer does not pause their campaign for it.
	Undecided bool
	err       error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Errorf returns an error of the class. The other arguments are those of fmt.Errorf.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, err: fmt.Errorf(format, args...)}
}

// Outagef returns an error of the class with Outage set. The class says whether the call may have happened.
// ClassBroken takes precedence over Outage. The other arguments are those of fmt.Errorf.
func Outagef(c Class, format string, args ...any) error {
	return &Error{Class: c, Outage: true, err: fmt.Errorf(format, args...)}
}

// Waitingf returns a ClassTransient error with Waiting set. It is for Handlers: a subscriber counts an attempt for it.
// Its arguments are those of fmt.Errorf.
func Waitingf(format string, args ...any) error {
	return &Error{Class: ClassTransient, Waiting: true, err: fmt.Errorf(format, args...)}
}

// Undecidedf returns a ClassConflict error with Undecided set. Its arguments are those of fmt.Errorf.
func Undecidedf(format string, args ...any) error {
	return &Error{Class: ClassConflict, Undecided: true, err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of the outermost Error in the chain of err, or ClassUnknown if there is none.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ClassUnknown
}

// IsOutage reports whether err has Outage set.
func IsOutage(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Outage
}

// IsWaiting reports whether err has Waiting set.
func IsWaiting(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Waiting
}

// IsUndecided reports whether err has Undecided set.
func IsUndecided(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Undecided
}
