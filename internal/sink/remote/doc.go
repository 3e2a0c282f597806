// Package remote settles grants at a balance system of somebody else, over HTTP.
//
// A Handler is a hongbao.Handler that asks for one credit a grant, with an Idempotency-Key and a reference that are
// made of the deployment, the campaign and the packet, and so are the same for ever.
//
// A grant is settled when the remote has credited it and then the ledger holds it: in this order, so that what the
// ledger holds is credited. If it fails in between the grant stays pending in the ledger, and the next attempt finds
// the credit as below, and records it.
//
// What it promises: a grant is credited at most once, whatever the remote answers or fails to answer. Every answer is
// one of five verdicts (table in verdict.go):
//
//   - DONE: the remote said so and repeated our reference, account, currency and amount;
//   - REJECTED: it will never do it; the grant becomes a dead letter. A rejected repeat says nothing about the request
//     before it, so that stays UNKNOWN;
//   - NOT_SENT: certainly nothing happened; send again;
//   - WAIT: come back later, with the same key;
//   - UNKNOWN: it may have happened. Everything that is not surely one of the others.
//
// Before the first request the ledger notes the credit as pending, with the time by its own clock, so that whoever
// takes over knows what may have been sent, and since when, whatever Redis has lost. UNKNOWN is resolved by what the
// remote is able to do:
//
//   - idempotent: the same key again, but not when its retention since the first request has run out;
//   - queryable: a question by reference. Found as we asked for it is done; found otherwise is a Conflict; not found
//     counts only when no request can still be under way (Config.QueryFinal), and then it is sent anew;
//   - neither: never a second time. The grant is a Conflict, and a person decides (Config.Verified).
//
// net/http repeats requests by itself: on a connection that was closed in between, any request with an
// Idempotency-Key whose body it can rewind, and on HTTP/2. None of that is on: bodies can't be rewound, HTTP/2 is
// off, a transport follows no redirect, and a remote without idempotency gets a connection a request.
//
// A breaker stops asking a remote that fails again and again; Retry-After is kept, up to a bound.
package remote
