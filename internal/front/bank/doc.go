// Package bank is an HTTP balance system over the ledger: the server for the client in package remote. Its endpoints
// are the source of docs/openapi-balance.yaml:
//
//	POST /v1/credits                   book one credit; Idempotency-Key in the header
//	POST /v1/credits:batch             book many; each with its key, each with its own result
//	GET  /v1/credits                   all credits of the client by reference, in pages
//	GET  /v1/credits/{reference}       what the client booked under a reference
//	GET  /v1/accounts/{id}             balances by currency
//	GET  /v1/accounts/{id}/statement   credits in the order in which they were booked, in pages
//	GET  /livez                        200 while the process serves; without a key
//	GET  /readyz                       200 while the ledger answers; without a key
//
// Callers send API keys (internal/base/access). A key with role client or accountant belongs to a client, and each
// client has its own references and idempotency keys.
//
// The package uses the error codes of the IETF's Idempotency-Key draft. It answers 400 without an idempotency key, 409
// while the first request with the key is running, and 422 if the key was used with another payload. Idempotency keys
// are kept permanently.
//
// It checks a request in this order, and refuses:
//
//   - a method that does not exist (405);
//   - a missing or invalid API key (401), and a role that may not do this (403);
//   - too many concurrent requests (503);
//   - a path that does not exist, or that a client or a proxy would rewrite (404): nothing is redirected;
//   - another content type or an encoding (415);
//   - a body above its bound (413);
//   - a body that is not one flat JSON object with exactly the known names, each once (400);
//   - ids, currencies and amounts out of range (400).
//
// Errors are problem objects of package web and quote nothing from the request. Timeouts cut off slow senders.
package bank
