// Package deadletter reads and resolves dead letters. Requeue delivers a letter's grant after all. Drop records that
// the grant will never be delivered. It is the only package that knows the format of a letter.
//
// Only a person's decision resolves a letter. One script moves the whole letter to the resolved letters, with the
// person and the reason. It stays there permanently.
//
// A requeue delivers the grant first and resolves the letter afterwards. If it is killed in between, the next requeue
// delivers the grant again. Both sinks ignore a second delivery: the ledger by its primary key, the publisher by the
// done bits of RequeueSink. An unreadable letter has no grant to deliver: a person can only inspect it and drop it.
package deadletter
