// Package deadletter reads dead letters, and resolves them: it delivers a letter's grant after all (Requeue), or
// records that it is never to be delivered (Drop). It is the only package that knows the format of a letter.
//
// Only a person's decision ends a letter. One step of Redis moves the whole letter to the resolved ones, with the
// person and the reason. It stays there permanently.
//
// A requeue delivers first and ends the letter afterwards. If it is killed in between, the next requeue delivers again.
// The Handler makes that harmless: the ledger by its key, the publisher by the done bits of RequeueSink. An unreadable
// letter has no grant to deliver: a person can only inspect it and drop it.
package deadletter
