// Package group runs the long-lived parts of a process and stops them in order.
//
// The parts start in the order in which they are given, which is that of their needs: what others rely on comes first.
// They stop in the reverse order, one after the other, each told to and waited for before the next. So nothing loses
// what it relies on while it drains.
//
// All stop when the caller's context ends, and as soon as one part has ended for any reason: a process that has lost a
// part is not left half alive, whoever watches it starts it anew. Run returns after every part has returned, and gives
// the errors of all of them, by name.
//
// It sets no deadline: how long a drain may take is the part's own bound.
package group
