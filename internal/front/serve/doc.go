// Package serve answers grabs over HTTP. docs/http.md describes it for its callers, docs/openapi.yaml for their
// programs.
//
// There are three listeners. The public one takes requests of users:
//
//	POST /v1/campaigns/{id}/grabs         grab; needs a token or a gateway's API key
//	POST /v1/campaigns/{id}/grabs:batch   grab for up to 128 users; needs a gateway's API key
//	GET  /v1/campaigns/{id}/grabs/me      the caller's own receipts; needs a token or a gateway's API key
//	GET  /v1/campaigns/{id}/grabs?user=   a user's receipts, without codes; needs an API key
//	GET  /v1/campaigns/{id}               status and countdown by the server's clock
//	GET  /openapi.json                    the OpenAPI document
//
// The control listener has what Deps.Control gives, administration; without it there is none.
//
// The ops listener has /livez and /readyz, and by Deps /metrics and /debug/pprof. Neither of the first two asks Redis:
// an outage of Redis must not take every process out of its load balancer at once.
//
// A user comes with a verified JWT, or a gateway names the user with its API key. Each fact that a limit counts by has a
// declared source of the same kinds. The body of a user's own request names neither. A key of the key set is valid for one
// algorithm, the one that the key names.
//
// A decided grab is 200 with its outcome. What is undecided is 503 with Retry-After. Every refusal is a problem of
// RFC 9457 with a code of the tables in routes.go and of internal/front/web; it repeats nothing of the request.
//
// What it refuses, in this order: more requests than the address's rate, if it has one (429); a path that does not exist
// (404), also one that a client or a proxy would rewrite; a method that does not exist (405); a missing or wrong token
// or API key (401); more requests than the user's or the key's rate (429); what the key may not do (403, or 404 for a
// campaign that it does not see); another content type or an encoding (415); a body above its bound (413); what is not one flat JSON object with exactly the
// known names, each once (400); ids out of range (400). Slow senders are cut off by timeouts.
package serve
