// Package deadletter reads dead letters, and resolves them: it delivers a letter's grant after all (Requeue), or
// records that nobody is to deliver it (Drop). It is the only place that knows what a letter looks like.
//
// Nothing but a person's decision ends a letter. One step of Redis moves the letter, whole, to the resolved ones, with
// who decided and why; it stays there for ever.
//
// A requeue delivers first and ends the letter afterwards. Killed in between, it is done again, and the Handler makes
// that harmless: the ledger by its key, the publisher by the done bits of RequeueSink. A letter that can't be read has
// no grant to deliver: a person can only look at it and drop it.
package deadletter
