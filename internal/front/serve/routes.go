package serve

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// codes are the error codes that only this package uses.
var codes = web.AddCodes(map[string]web.Code{
	"request_id_invalid": {Status: http.StatusBadRequest, Title: "This can't be a request id"},
	"request_id_required": {Status: http.StatusBadRequest,
		Title: "A user may have several packets of this campaign, so each grab needs a request id"},
	"fact_missing": {Status: http.StatusForbidden,
		Title: "A fact is missing that the campaign's limits count by"},
	"user_invalid":  {Status: http.StatusBadRequest, Title: "This can't be the id of a user"},
	"facts_invalid": {Status: http.StatusBadRequest, Title: "These can't be the facts of a grab"},
	"grabs_invalid": {Status: http.StatusBadRequest, Title: "The body has no list of 1 to 128 grabs"},
	"not_durable": {Status: http.StatusServiceUnavailable,
		Title: "No answer yet: the user's receipts are not as durable as the campaign promises"},
})

// API describes the endpoints of the public listener. They accept tokens only after Run has opened the key set.
func (s *Server) API() *web.API {
	a := &web.API{
		Title: "Hongbao", Description: "Grabs, receipts and countdowns. See docs/http.md.",
		Pages: "docs/api.md and /openapi.json list the paths", Listener: "serve.listen", Codes: []string{"host_unknown"},
		Schemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "A user's token."},
			"key":   {Type: "http", Scheme: "bearer", BearerFormat: "hb_...", Description: "An API key."},
		},
		Endpoints: s.endpoints(), AnswerTime: s.cfg.AnswerTime(), Log: s.log,
	}
	if s.addresses != nil {
		a.Admit = func(r *http.Request) error { return s.refused(r, 1, s.addresses.admit(r)) }
	}
	return a
}

func (s *Server) endpoints() []web.Endpoint {
	id, user, key := []*huma.Param{web.CampaignID()}, []string{"token", "key"}, []string{"key"}
	ofUser := append(slices.Clone(id),
		&huma.Param{Name: userHeader, In: "header", Description: "Only with an API key: id of the user for whom the " +
			"gateway acts.", Schema: web.IDSchema()},
		&huma.Param{Name: factsHeader, In: "header", Description: "Only with an API key: the facts of the grab that " +
			"limits count by, such as device=d1 channel=app.",
			Schema: &huma.Schema{Type: huma.TypeString}})
	return []web.Endpoint{
		{
			Method: http.MethodPost, Path: "/v1/campaigns/{id}/grabs", ID: "grab", Summary: "Grab a packet",
			Description: "Decides a grab. The user is the token's user, or the user whom a gateway with an API key names. " +
				"Every decided grab gets the status 200. After the status 503, or without an answer, send the same request " +
				"again: with the same `request_id` a granted grab gets the same receipt. The field `request_id` is required if " +
				"a user may have several packets of the campaign. It is also required from a gateway.",
			Params: ofUser, Security: user, Roles: access.RolesOf(access.Grab), Body: grabRequest{}, Answer: GrabAnswer{}, Crowd: true, Do: s.asUser(s.grab),
			Codes: slices.Concat(web.BodyCodes, []string{"invalid_parameter", "campaign_invalid", "user_invalid", "facts_invalid",
				"request_id_invalid", "request_id_required", "fact_missing", "forbidden", "unknown_campaign", "busy", "frozen", "refilling",
				"unavailable", "outcome_unknown", "rate_limited"}),
		},
		{
			Method: http.MethodPost, Path: "/v1/campaigns/{id}/grabs:batch", ID: "grab-batch",
			Summary: "Grab for up to 128 users",
			Description: "Decides grabs of a gateway's users. The results are in the order of the grabs. An invalid grab " +
				"does not affect the others. If the request is sent again, each granted grab gets the same receipt.",
			Params: id, Security: key, Roles: access.RolesOf(access.Grab), Body: batchRequest{}, Answer: BatchAnswer{},
			Do: s.grabBatch,
			Codes: slices.Concat(web.BodyCodes, []string{"invalid_parameter", "grabs_invalid", "campaign_invalid", "unknown_campaign", "forbidden",
				"unavailable", "rate_limited"}),
		},
		{
			Method: http.MethodGet, Path: "/v1/campaigns/{id}/grabs", ID: "user-receipts", Summary: "List a user's receipts",
			Description: "Lists the packets that a user got in a campaign, without coupon codes.",
			Params: append(id, &huma.Param{Name: "user", In: "query", Required: true, Description: "The user's id.",
				Schema: web.IDSchema()}),
			Security: key, Roles: access.RolesOf(access.ReadGrants), Answer: Receipts{}, Do: s.userReceipts,
			Codes: []string{"campaign_invalid", "user_invalid", "unknown_campaign", "archived", "forbidden", "frozen",
				"not_durable", "unavailable", "rate_limited"},
		},
		{
			Method: http.MethodGet, Path: "/v1/campaigns/{id}/grabs/me", ID: "own-receipts", Summary: "List the user's own " +
				"receipts",
			Description: "Lists the packets that the user got in a campaign, with their coupon codes. The user is the " +
				"token's user, or the user whom a gateway with an API key names.",
			Params: ofUser, Security: user, Roles: access.RolesOf(access.Grab), Answer: Receipts{}, Do: s.asUser(s.ownReceipts),
			Codes: []string{"invalid_parameter", "campaign_invalid", "user_invalid", "facts_invalid", "forbidden", "unknown_campaign", "archived", "frozen",
				"not_durable", "unavailable", "rate_limited"},
		},
		{
			Method: http.MethodGet, Path: "/v1/campaigns/{id}", ID: "campaign", Summary: "Show the status and the countdown " +
				"of a campaign",
			Description: "Returns whether the campaign is open, and when it starts and ends by the server's own clock. " +
				"The answer may be a second old.",
			Params: id, Answer: CampaignAnswer{}, Do: s.campaign,
			Codes: []string{"invalid_parameter", "campaign_invalid", "unknown_campaign", "frozen", "unavailable", "rate_limited"},
		},
	}
}

// asUser returns a handler that identifies the user and checks the user's rate before it calls do.
func (s *Server) asUser(
	do func(w http.ResponseWriter, r *http.Request, who *caller) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		who := callers.Get().(*caller) //nolint:forcetypeassert // the pool has only values of this type
		defer who.release()
		if err := s.identify(r, who); err != nil {
			return s.refused(r, 1, err)
		}
		if wait := s.limits.take(who.user, 1, time.Now()); wait > 0 {
			return s.refused(r, 1, rateLimited(wait))
		}
		if err := noQuery(r); err != nil {
			return err
		}
		return do(w, r, who)
	}
}

// noQuery returns an error if the request has a query. Otherwise the caller would believe that the query has an
// effect.
func noQuery(r *http.Request) error {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return web.Refuse("invalid_parameter", "this path takes no query")
	}
	return nil
}

// identify identifies the user by a token, or by the headers of a gateway with an API key.
func (s *Server) identify(r *http.Request, who *caller) error {
	switch text := web.Bearer(r); {
	case strings.HasPrefix(text, access.KeyPrefix):
		return s.forUser(r, who)
	case text != "" && s.verifier != nil:
		if err := s.verifier.identify(r, text, who); err != nil {
			return err
		}
		return onlyGateways(r.Header)
	}
	return unauthorized(nil)
}

// refused returns the error of a request that the server refuses before its n grabs are decided. If the refusal says
// nothing about the request itself (status 429 or 503), it counts them.
func (s *Server) refused(r *http.Request, n int, err error) error {
	var refusal *web.Refusal
	if r.Method == http.MethodPost && errors.As(err, &refusal) && (refusal.Code == "rate_limited" || refusal.Code == "unavailable") {
		s.deps.Refused(r.PathValue("id"), refusal.Code, n)
	}
	return err
}

func rateLimited(wait time.Duration) error {
	return &web.Refusal{Code: "rate_limited", Detail: "try again after Retry-After seconds", Wait: wait}
}
