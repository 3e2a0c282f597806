package serve

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/web"
)

// codes are those that only this package answers.
var codes = web.AddCodes(map[string]web.Code{
	"request_id_invalid": {Status: http.StatusBadRequest, Title: "This can't be a request id"},
	"request_id_required": {Status: http.StatusBadRequest,
		Title: "A user may have several packets of this campaign, so each grab needs a request id"},
	"fact_missing": {Status: http.StatusForbidden,
		Title: "The token lacks a fact that the campaign's limits count by"},
	"busy": {Status: http.StatusServiceUnavailable,
		Title: "Nothing is decided yet: grants come faster than they are settled"},
	"not_durable": {Status: http.StatusServiceUnavailable,
		Title: "Nothing is told yet: what the user holds is not as safe as the campaign promises"},
})

// API is what the public listener answers, once Run has read the key set.
func (s *Server) API() *web.API {
	return &web.API{
		Title: "Hongbao", Description: "Grabs, receipts and countdowns. docs/http.md tells more.",
		Pages: "docs/http.md and /openapi.json list the paths",
		Schemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT"},
		},
		Endpoints: s.endpoints(), AnswerTime: s.cfg.AnswerTime(), Log: s.log,
	}
}

func (s *Server) endpoints() []web.Endpoint {
	id, token := []*huma.Param{web.CampaignID()}, []string{"token"}
	return []web.Endpoint{
		{
			Method: http.MethodPost, Path: "/v1/campaigns/{id}/grabs", ID: "grab", Summary: "Grab a packet",
			Description: "Decides a grab of the token's user. Every decided outcome is 200. After 503, and when no answer " +
				"came, send the same request again: with the same request_id a grab that was granted gets the same receipt. A " +
				"campaign in which a user may have several packets requires a request_id.",
			Params: id, Security: token, Body: grabRequest{}, Answer: GrabAnswer{}, Do: s.asUser(s.grab),
			Codes: []string{"content_type", "content_encoding", "body_too_large", "body_incomplete", "body_required",
				"invalid_json", "duplicate_field", "nested_value", "unknown_field", "campaign_invalid", "request_id_invalid",
				"request_id_required", "fact_missing", "unknown_campaign", "busy", "frozen", "unavailable",
				"outcome_unknown", "rate_limited"},
		},
		{
			Method: http.MethodGet, Path: "/v1/campaigns/{id}/grabs/me", ID: "own-receipts", Summary: "The caller's receipts",
			Description: "Lists what the token's user holds in a campaign, with the codes of coupons.",
			Params:      id, Security: token, Answer: Receipts{}, Do: s.asUser(s.ownReceipts),
			Codes: []string{"campaign_invalid", "unknown_campaign", "frozen", "not_durable", "unavailable", "rate_limited"},
		},
		{
			Method: http.MethodGet, Path: "/v1/campaigns/{id}", ID: "campaign", Summary: "Status and countdown of a campaign",
			Description: "Says whether grabs are decided now, and by the server's own clock when that begins and ends. " +
				"It is up to a second old.",
			Params: id, Answer: CampaignAnswer{}, Do: s.campaign,
			Codes: []string{"campaign_invalid", "unknown_campaign", "frozen", "unavailable"},
		},
	}
}

// asUser checks whose request it is, and his rate, before anything of the body is read.
func (s *Server) asUser(
	do func(w http.ResponseWriter, r *http.Request, who *caller) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		who, err := s.verifier.identify(r)
		if err != nil {
			return err
		}
		if wait := s.limits.take(who.user, time.Now()); wait > 0 {
			return &web.Refusal{Code: "rate_limited", Detail: "come back after Retry-After seconds", Wait: wait}
		}
		return do(w, r, who)
	}
}

// ops is what the ops listener serves. Neither path of its own asks another server.
func (s *Server) ops(more func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		web.WriteJSON(w, http.StatusOK, health{"ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			web.WriteJSON(w, http.StatusServiceUnavailable, health{"draining"})
			return
		}
		web.WriteJSON(w, http.StatusOK, health{"ok"})
	})
	if more != nil {
		more(mux)
	}
	return mux
}

type health struct {
	Status string `json:"status"`
}
