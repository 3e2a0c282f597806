// Package access defines which callers may do what by API. A caller sends an API key; its role and its campaigns
// determine the allowed actions, by one table (Rules). docs/security.md has that table.
//
//	Authority   knows the keys and the sessions of the console: it identifies callers
//	Caller      what that caller may do
//	Entry       a line of the journal: the caller and the action
//	Once        the same request twice, one effect, one answer
//
// The tables are the ledger's (internal/ledger); this package knows no database.
package access
