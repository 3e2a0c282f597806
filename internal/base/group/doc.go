// Package group runs the long-lived parts of a process and stops them in order.
//
// The caller lists each part after the parts that it depends on. Run starts the parts in this order and stops them in
// the reverse order. It waits until a part has returned before it stops the next one. So the dependencies of a part
// still run while the part drains.
//
// All parts stop when the caller's context ends, or as soon as one part returns for any reason. So a process never
// continues without one of its parts: it exits, and its supervisor restarts it. Run returns after every part has
// returned, and joins their errors, each with the name of its part.
//
// Run sets no deadline: each part must limit the time of its own drain.
package group
