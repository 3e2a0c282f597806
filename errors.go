package hongbao

import (
	"errors"
	"fmt"
)

// Class says what the one who meets an error has to do. It is set once, where the outside was met, by type or code and
// never by text.
type Class uint8

// The classes.
const (
	// ClassUnknown: it may have happened. Ask, or repeat with the same id. An error without a class is ClassUnknown.
	ClassUnknown Class = iota
	// ClassTransient: nothing happened; try again.
	ClassTransient
	// ClassPermanent: it will never work; dead letter.
	ClassPermanent
	// ClassConflict: it contradicts what is stored; quarantine and alarm.
	ClassConflict
	// ClassBroken: going on would do harm; stop this shard and call a person.
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
	// Outage marks a failure of the whole sink, not of one grant: it is down or out of reach. The consumer then
	// waits with all it holds and takes no attempt from any grant.
	Outage bool
	// Held marks that this grant has to wait for something that is no failure of its own: a live worker has its push in
	// hand, or it is not known yet whether the sink refuses this grant or everything. The consumer parks it and takes no
	// attempt from it.
	Held bool
	err  error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Errorf makes an error of a class; format and args are those of fmt.Errorf.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, err: fmt.Errorf(format, args...)}
}

// Outagef makes an error that says that the whole sink is down; format and args are those of fmt.Errorf.
func Outagef(c Class, format string, args ...any) error {
	return &Error{Class: c, Outage: true, err: fmt.Errorf(format, args...)}
}

// Heldf makes an error that says that the grant has to wait for something that is no failure of its own; format and
// args are those of fmt.Errorf.
func Heldf(format string, args ...any) error {
	return &Error{Class: ClassTransient, Held: true, err: fmt.Errorf(format, args...)}
}

// ClassOf is the class of err: that of the outermost Error in its chain, else ClassUnknown.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ClassUnknown
}

// IsOutage tells whether err says that the whole sink is down.
func IsOutage(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Outage
}

// IsHeld tells whether err says that the grant has to wait for something that is no failure of its own.
func IsHeld(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Held
}
