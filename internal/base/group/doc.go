// Package group runs the long-lived parts of a process and stops them in order.
//
// The parts start in the given order: a part comes after the parts that it relies on. They stop in the reverse order.
// Each is stopped and waited for before the next one is stopped. So no part loses what it relies on while it drains.
//
// All stop when the caller's context ends, and as soon as one part has ended for any reason. A process that has lost a
// part is not left half alive: its supervisor starts it again. Run returns after every part has returned, and returns
// the errors of all of them, by name.
//
// It sets no deadline: how long a drain may take is the part's own bound.
package group
