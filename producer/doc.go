// Package producer puts grabs into Redis.
//
// A single grab takes one round trip, and a crowd shares calls: while calls are in flight the next grabs of that
// campaign queue up and go together, up to 128, when one returns. No timer is involved. Every grab carries a request
// id (the producer generates one where it is optional), so a call whose answer was lost is repeated and gets the same
// answer.
//
// Outcomes are values. The producer repeats undecided grabs (busy, frozen, refilling). If a grab stays undecided, the
// producer returns it as undecided, never as a refusal. The hongbao.Class of an error says what the caller must do.
// Permanent: the grab is malformed and nothing was touched. Transient: nothing happened. Unknown: it may have been
// granted, and the same request id gets the answer.
//
// The producer refuses more waiting grabs than configured, and a Redis that can't keep the campaign's durability
// class.
package producer
