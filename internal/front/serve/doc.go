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
// The control listener serves Deps.Control, the administration. Without Deps.Control it is not opened.
//
// The ops listener has /livez and /readyz, and by Deps /metrics and /debug/pprof. /livez and /readyz do not check
// Redis: otherwise an outage of Redis would take every process out of its load balancer at once.
//
// A verified JWT names the user, or a gateway with an API key does. Each fact that a limit counts by has a declared
// source of the same kinds. User and facts are never read from the body of a user's own request. A key of the key set
// is valid only for the algorithm that it names.
//
// A decided grab is 200 with its outcome. An undecided grab is 503 with Retry-After. Every refusal is a problem of
// RFC 9457 with a code of the tables in routes.go and of internal/front/web. A problem contains no text of the request.
//
// The server checks a request in this order: the rate of its address, if that has one (429); the path (404, also for
// a path that a client or a proxy would rewrite); the method (405); the token or API key (401); the rate of the user
// or key (429); the permissions of the key (403, or 404 for a campaign that it does not see); the content type and
// encoding (415); the size of the body (413); the body, which must be one flat JSON object with exactly the known
// names, each once (400); the ranges of ids (400). Timeouts cut off slow senders.
package serve
