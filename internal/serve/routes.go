package serve

import (
	"context"
	"fmt"
	"github.com/hongbao-project/hongbao/internal/web"
	"math/rand/v2"
	"net/http"
	"time"
)

const requestIDHeader = "X-Request-Id"

// endpoint is what a path does for a method, and what the OpenAPI document says of it.
type endpoint struct {
	method, path, id, summary, description string
	// open: it takes no token, and do gets no caller.
	open bool
	// body and answer are values of the types of the request's body, nil for none, and of the answer.
	body, answer any
	// codes are those of the problems that it can answer, besides those that every endpoint can.
	codes []string
	do    func(s *Server, w http.ResponseWriter, r *http.Request, who *caller) error
}

// endpoints of the public listener. A path has one method.
func endpoints() []endpoint {
	return []endpoint{
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/grabs", id: "grab", summary: "Grab a packet",
			description: "Decides a grab of the token's user. Every decided outcome is 200. After 503, and when no answer " +
				"came, send the same request again: with the same request_id a grab that was granted gets the same receipt. A " +
				"campaign in which a user may have several packets requires a request_id.",
			body: grabRequest{}, answer: GrabAnswer{}, do: (*Server).grab,
			codes: []string{"content_type", "content_encoding", "body_too_large", "body_incomplete", "body_required",
				"invalid_json", "duplicate_field", "nested_value", "unknown_field", "campaign_invalid", "request_id_invalid",
				"request_id_required", "fact_missing", "unknown_campaign", "busy", "frozen", "unavailable",
				"outcome_unknown"},
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}/grabs/me", id: "own-receipts", summary: "The caller's receipts",
			description: "Lists what the token's user holds in a campaign, with the codes of coupons.",
			answer:      Receipts{}, do: (*Server).ownReceipts,
			codes: []string{"campaign_invalid", "unknown_campaign", "frozen", "not_durable", "unavailable"},
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}", id: "campaign", summary: "Status and countdown of a campaign",
			description: "Says whether grabs are decided now, and by the server's own clock when that begins and ends. " +
				"It is up to a second old.",
			open: true, answer: CampaignAnswer{}, do: (*Server).campaign,
			codes: []string{"campaign_invalid", "unknown_campaign", "frozen", "unavailable"},
		},
	}
}

// Handler is what the public listener serves, once Run has read the key set. An odd path is unknown like any other: a
// redirect would answer before the token is checked.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range endpoints() {
		mux.Handle(e.path, s.route(&e))
	}
	mux.Handle("/openapi.json", s.route(&endpoint{method: http.MethodGet, open: true, do: (*Server).openapi}))
	unknown := s.route(&endpoint{open: true, do: func(*Server, http.ResponseWriter, *http.Request, *caller) error {
		return refuse("not_found", "docs/http.md and /openapi.json list the paths")
	}})
	mux.Handle("/", unknown)
	return web.CleanPaths(mux, unknown)
}

// route checks what every request must pass, before anything of its body is read, and writes its error.
func (s *Server) route(e *endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set(requestIDHeader, fmt.Sprintf("%016x", rand.Uint64()))
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if err := s.admit(e, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) admit(e *endpoint, w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.answerTime())
	defer cancel()
	r = r.WithContext(ctx)
	if e.method != "" && e.method != r.Method {
		w.Header().Set("Allow", e.method)
		return refuse("method_not_allowed", "this path takes "+e.method+" only")
	}
	if e.open {
		return e.do(s, w, r, nil)
	}
	who, err := s.verifier.identify(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return err
	}
	if wait := s.limits.take(who.user, time.Now()); wait > 0 {
		return &problem{code: "rate_limited", detail: "come back after Retry-After seconds", wait: wait}
	}
	return e.do(s, w, r, who)
}

// answerTime is how long a request may take, so that there is time left to write its answer.
func (s *Server) answerTime() time.Duration {
	return max(s.cfg.WriteTimeout-time.Second, s.cfg.WriteTimeout/2)
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.document) // a caller who is gone needs no answer
	return nil
}

// ops is what the ops listener serves. Neither path asks another server.
func (s *Server) ops() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, health{"ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			writeAs(w, http.StatusServiceUnavailable, "application/json", health{"draining"})
			return
		}
		writeJSON(w, health{"ok"})
	})
	return mux
}

type health struct {
	Status string `json:"status"`
}
