// Package remote settles grants at an external balance system, over HTTP.
//
// A Handler is a hongbao.Handler that requests one credit for each grant. The Idempotency-Key and the reference consist
// of the deployment, the campaign and the packet, so they never change.
//
// First the remote credits a grant, then the ledger records it. So the remote has credited every grant that is
// recorded. After a failure between the two steps, the grant stays pending in the ledger. The next attempt finds the
// credit as described below, and records it.
//
// The remote credits each grant at most once, whatever it answers or fails to answer. Every response leads to one of
// five outcomes (see the table in outcome.go):
//
//   - DONE: the remote confirmed the credit and repeated our reference, account, currency and amount.
//   - REJECTED: the remote will never book the credit, and the grant becomes a dead letter. The rejection of a retry
//     says nothing about the earlier request, whose outcome stays UNKNOWN.
//   - NOT_SENT: the remote certainly did nothing, so the request is sent again.
//   - WAIT: the request must be retried later with the same key.
//   - UNKNOWN: the remote may have booked the credit. Every response without another outcome is UNKNOWN.
//
// Before the first request, the ledger stores the credit as pending, with the time of the ledger's clock. So a worker
// that takes over knows what may have been sent, and since when, even if Redis has lost data. How UNKNOWN is resolved
// depends on what the remote supports:
//
//   - idempotent: the request is sent again with the same key, as long as the remote certainly remembers the key.
//   - queryable: the credit is queried by its reference. If it is booked as requested, the grant is done. If it is
//     booked differently, the result is a Conflict. "Not found" counts only when no request can still be under way
//     (Config.QueryFinal). Then the request is sent again.
//   - neither: the request is never sent again. The result is a Conflict, and a person decides (Config.Verified).
//
// net/http retries some requests automatically. It does so on HTTP/2, and after the server has closed a kept
// connection, if the request has an Idempotency-Key and a body that can be rewound. This package prevents such retries:
// bodies can't be rewound, HTTP/2 is off, and a remote without idempotency gets a new connection for each request.
// Redirects are not followed.
//
// A circuit breaker stops requests to a remote that fails repeatedly. Retry-After is obeyed, up to a limit.
package remote
