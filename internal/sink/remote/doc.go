// Package remote settles grants at an external balance system, over HTTP.
//
// A Handler is a hongbao.Handler that asks for one credit for each grant. The Idempotency-Key and the reference consist
// of the deployment, the campaign and the packet, and so never change.
//
// A grant is settled when the remote has credited it and then the ledger has it. In this order every grant of the
// ledger is credited. After a failure in between the grant stays pending in the ledger, and the next attempt finds the
// credit as below, and records it.
//
// What it promises: a grant is credited at most once, whatever the remote answers or fails to answer. Every response is
// one of five verdicts (table in verdict.go):
//
//   - DONE: the remote said so and repeated our reference, account, currency and amount;
//   - REJECTED: it will never do it; the grant becomes a dead letter. A rejected repeat says nothing about the request
//     before it, so that stays UNKNOWN;
//   - NOT_SENT: certainly nothing happened; send again;
//   - WAIT: come back later, with the same key;
//   - UNKNOWN: it may have happened. Everything that is not certainly one of the others.
//
// Before the first request the ledger notes the credit as pending, with the time by its own clock. So the worker that
// takes over knows what may have been sent, and since when, whatever Redis has lost. UNKNOWN is resolved by what the
// remote supports:
//
//   - idempotent: the same key again, but not when its retention since the first request has run out;
//   - queryable: a query by reference. A credit found as we asked for it is done; one found otherwise is a Conflict;
//     not found counts only when no request can still be under way (Config.QueryFinal), and then it is sent again;
//   - neither: never a second time. The grant is a Conflict, and a person decides (Config.Verified).
//
// net/http repeats requests by itself: on a connection that was closed in between, any request with an Idempotency-Key
// whose body it can rewind, and on HTTP/2. All of this is off: bodies can't be rewound, HTTP/2 is off, a transport
// follows no redirect, and a remote without idempotency gets one connection per request.
//
// A breaker stops requests to a remote that fails repeatedly; Retry-After is obeyed, up to a bound.
package remote
