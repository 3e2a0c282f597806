// Package access decides which callers may take which actions through the API. A caller sends an API key. The role and
// the campaigns of the key determine the allowed actions, according to one table (Rules), which docs/security.md also
// shows.
//
//	Authority   identifies callers by their API keys and console sessions
//	Caller      an identified caller, with the actions that the caller may take
//	Entry       a line of the journal: who took which action
//	Request     identifies a modifying request, so that a repeat has no second effect
//
// The ledger (internal/ledger) stores the keys, sessions and journal entries; this package does not depend on a
// database.
package access
