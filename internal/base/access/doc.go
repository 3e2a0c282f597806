// Package access decides which callers may take which actions through the API. A caller sends an API key. The role and
// the campaigns of the key determine the allowed actions, according to one table (Rules), which docs/security.md also
// shows.
//
//	Authority   knows the keys and the sessions of the console: it identifies callers
//	Caller      what that caller may do
//	Entry       a line of the journal: the caller and the action
//	Once        the same request twice, one effect, one answer
//
// The ledger (internal/ledger) stores the keys, sessions and journal entries; this package does not depend on a
// database.
package access
