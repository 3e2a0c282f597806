package control

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao/internal/ops"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// These error codes are used only by this package.
var _ = web.AddCodes(map[string]web.Code{
	"invalid_value":            {Status: http.StatusBadRequest, Title: "A field of the body is invalid"},
	"invalid_name":             {Status: http.StatusBadRequest, Title: "The name is invalid"},
	"specification_invalid":    {Status: http.StatusBadRequest, Title: "The campaign's specification is invalid"},
	"specification_impossible": {Status: http.StatusUnprocessableEntity, Title: "The campaign's specification can't be met"},
	"idempotency_key_in_use":   {Status: http.StatusConflict, Title: "The first request with this Idempotency-Key is still running"},
	"unknown_letter":           {Status: http.StatusNotFound, Title: "There is no such dead letter"},
	"unknown_quarantine":       {Status: http.StatusNotFound, Title: "There is no such grant in quarantine"},
	"unknown_sink":             {Status: http.StatusNotFound, Title: "The deployment has no such sink"},
	"unknown_replay":           {Status: http.StatusNotFound, Title: "There is no such replay"},
	"campaign_exists":          {Status: http.StatusConflict, Title: "The campaign exists with another specification"},
	"funded_otherwise":         {Status: http.StatusConflict, Title: "The campaign is funded with another total"},
	"order_reused":             {Status: http.StatusConflict, Title: "The order's id belongs to another top-up"},
	"top_up_open":              {Status: http.StatusConflict, Title: "The last top-up is not dealt yet"},
	"loading_begun":            {Status: http.StatusConflict, Title: "The campaign's load has begun"},
	"not_loaded":               {Status: http.StatusConflict, Title: "The campaign is not in Redis"},
	"not_closed":               {Status: http.StatusConflict, Title: "The campaign is not closed"},
	"not_refunded":             {Status: http.StatusConflict, Title: "The campaign is not refunded"},
	"campaign_lost":            {Status: http.StatusConflict, Title: "Redis has lost data of the campaign"},
	"wrong_amount":             {Status: http.StatusConflict, Title: "The amount is not the exact amount of the refund"},
	"grants_missing":           {Status: http.StatusConflict, Title: "The ledger does not have all grants that the close recorded"},
	"decided_otherwise":        {Status: http.StatusConflict, Title: "Another decision was made before"},
	"not_payable":              {Status: http.StatusConflict, Title: "The grant can't be paid from the reserve"},
	"replay_differs":           {Status: http.StatusConflict, Title: "The replay was started with another range or target"},
	"not_running":              {Status: http.StatusConflict, Title: "No server runs the replay"},
	"conflict":                 {Status: http.StatusConflict, Title: "The present state contradicts the request"},
	"refused":                  {Status: http.StatusConflict, Title: "The present state does not allow it"},
})

// shortly is the delay before a retry that an answer 503 asks for.
const shortly = time.Second

// problemOf turns an error into a problem with its error code. The problem contains the error's text, because its
// readers are operators. If a store does not answer, the problem only asks for a retry.
func problemOf(err error) error {
	var refused *web.Refusal
	var spec *campaign.SpecError
	var usage app.UsageError
	var wrong *ops.InputError
	switch {
	case err == nil || errors.As(err, &refused) || errors.Is(err, guard.ErrPanic):
		return err
	case errors.As(err, &wrong):
		return &web.Refusal{Code: cmp.Or(wrong.Code, "invalid_value"), Detail: wrong.Error(), Cause: err}
	case errors.As(err, &usage):
		return &web.Refusal{Code: "invalid_value", Detail: err.Error(), Cause: err}
	case errors.As(err, &spec):
		return &web.Refusal{Code: codeOfSpec(spec), Detail: spec.Error(), Cause: err}
	}
	if code := ops.CodeOf(err); code != "" {
		r := &web.Refusal{Code: code, Detail: err.Error(), Cause: err}
		if web.CodeOf(code).Status == http.StatusServiceUnavailable {
			r.Wait = shortly
		}
		return r
	}
	switch hongbao.ClassOf(err) {
	case hongbao.ClassPermanent:
		return &web.Refusal{Code: "refused", Detail: err.Error(), Cause: err}
	case hongbao.ClassConflict:
		return &web.Refusal{Code: "conflict", Detail: err.Error(), Cause: err}
	case hongbao.ClassTransient, hongbao.ClassBroken:
		return &web.Refusal{Code: "unavailable", Detail: "send the same request again, with the same Idempotency-Key",
			Wait: shortly, Cause: err}
	case hongbao.ClassUnknown:
	}
	return &web.Refusal{Code: "outcome_unknown", Detail: "send the same request again, with the same Idempotency-Key",
		Wait: shortly, Cause: err}
}

// impossible are the problems of a specification whose fields are valid but contradict each other.
var impossible = map[string]bool{
	"budget_too_small": true, "budget_too_large": true, "min_above_max": true, "tiers_packets_mismatch": true,
	"tiers_total_mismatch": true, "code_space_too_small": true, "currency_required": true, "not_allowed_here": true,
	"limit_needs_one_shard": true, "shards_above_deployment": true,
}

func codeOfSpec(e *campaign.SpecError) string {
	for _, p := range e.Problems {
		if !impossible[p.Code] {
			return "specification_invalid"
		}
	}
	return "specification_impossible"
}
