// Package serve answers grabs over HTTP. docs/http.md describes the API for people, docs/openapi.yaml for
// programs.
//
// There are two listeners. The public one takes requests of users:
//
//	POST /v1/campaigns/{id}/grabs         grab; needs a token or a gateway's API key
//	POST /v1/campaigns/{id}/grabs:batch   grab for up to 128 users; needs a gateway's API key
//	GET  /v1/campaigns/{id}/grabs/me      the caller's own receipts; needs a token or a gateway's API key
//	GET  /v1/campaigns/{id}/grabs?user=   a user's receipts, without codes; needs an API key
//	GET  /v1/campaigns/{id}               status and countdown by the server's clock
//	GET  /openapi.json                    the OpenAPI document
//
// The ops listener serves /livez and /readyz and, depending on Deps, /metrics and /debug/pprof. /livez and
// /readyz do not check Redis, because otherwise an outage of Redis would make every load balancer remove all
// processes at once.
//
// The user is named by a verified JWT, or by a gateway with an API key. serve.facts declares for each fact whether it
// comes from the JWT or from the gateway. The user and the facts are never read from the body of a user's own
// request. A key of the key set verifies only tokens of the algorithm that it declares.
//
// The answer to a decided grab has status 200 and the outcome. The answer to an undecided grab has status 503 and
// Retry-After. Every other answer is a problem of RFC 9457 with a code from the tables in routes.go and
// internal/front/web. A problem quotes nothing from the request.
//
// The server checks a request in this order: the rate of its address, if that has one (429); the path (404, also for
// a path that a client or a proxy would rewrite); the method (405); the token or API key (401); the rate of the user
// or key (429); the permissions of the key (403, or 404 for a campaign that it does not see); the content type and
// encoding (415); the size of the body (413); the body, which must be one flat JSON object with exactly the known
// names, each once (400); the ranges of ids (400). Timeouts cut off slow senders.
package serve
