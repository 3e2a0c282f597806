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
// five verdicts (see the table in verdict.go):
//
//   - DONE: the remote said so and repeated our reference, account, currency and amount;
//   - REJECTED: it will never do it; the grant becomes a dead letter. A rejected repeat says nothing about the request
//     before it, so that stays UNKNOWN;
//   - NOT_SENT: certainly nothing happened; send again;
//   - WAIT: come back later, with the same key;
//   - UNKNOWN: it may have happened. Everything that is not certainly one of the others.
//
// Before the first request, the ledger stores the credit as pending, with the time of the ledger's clock. So a worker
// that takes over knows what may have been sent, and since when, even if Redis has lost data. How UNKNOWN is resolved
// depends on what the remote supports:
//
//   - idempotent: the same key again, but not when its retention since the first request has run out;
//   - queryable: a query by reference. A credit found as we asked for it is done; one found otherwise is a Conflict;
//     not found counts only when no request can still be under way (Config.QueryFinal), and then it is sent again;
//   - neither: never a second time. The grant is a Conflict, and a person decides (Config.Verified).
//
// net/http retries some requests automatically. It does so on HTTP/2, and after the server has closed a kept
// connection, if the request has an Idempotency-Key and a body that can be rewound. This package prevents such retries:
// bodies can't be rewound, HTTP/2 is off, and a remote without idempotency gets a new connection for each request.
// Redirects are not followed.
//
// A circuit breaker stops requests to a remote that fails repeatedly. Retry-After is obeyed, up to a limit.
package remote
