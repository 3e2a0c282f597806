// Package tables reads and writes the tables of a ledger. It has what the packages of the ledger share: the database
// with its transactions, queries and pages, and the rows that more than one of them reads. Package ledger moves the
// money, package books adds it up, and package access has the API keys, the console's sessions and the journal.
package tables
