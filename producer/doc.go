// Package producer makes Redis decide grabs.
//
// A single grab takes one round trip. Under load grabs share calls: while calls of a campaign are in flight, further
// grabs queue up, and the next call takes up to 128 of them. No timer delays a call. Every grab has a request id; if
// the caller may omit it, the producer generates one. So a call whose answer was lost can be retried and gets the same
// answer.
//
// Outcomes are values, not errors. The producer retries grabs with an undecided outcome (busy, frozen, refilling) for
// a while. After that it returns the undecided outcome, never a refusal. The hongbao.Class of an error says what
// happened. Permanent: the grab is malformed, and nothing happened. Transient: nothing happened, and a retry may help.
// Unknown: the grab may have been granted, and a retry with the same request id gets the answer.
//
// The producer rejects a grab if too many grabs are waiting. It does not use a Redis that can't provide the campaign's
// durability class.
package producer
