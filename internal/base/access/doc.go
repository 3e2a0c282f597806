// Package access says who may do what by API. A caller brings an API key; its role and its campaigns say which actions
// it may take, by one table (Rules). docs/security.md has that table.
//
//	Authority   knows the keys and the sessions of the console: who a caller is
//	Caller      what that caller may do
//	Entry       a line of the journal: who did what
//	Once        the same request twice, one effect, one answer
//
// The tables are the ledger's (internal/ledger); this package knows no database.
package access
