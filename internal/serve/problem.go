package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// refusal is what a code stands for.
type refusal struct {
	status int
	title  string
}

// refusals has every code that a problem can have. A code never changes its meaning.
var refusals = map[string]refusal{
	"not_found":          {http.StatusNotFound, "There is no such path"},
	"method_not_allowed": {http.StatusMethodNotAllowed, "The path does not take this method"},
	"unauthorized":       {http.StatusUnauthorized, "The token is missing or is not good here"},
	"rate_limited":       {http.StatusTooManyRequests, "The user makes too many requests"},
	"content_type":       {http.StatusUnsupportedMediaType, "The body is not application/json"},
	"content_encoding":   {http.StatusUnsupportedMediaType, "The body is encoded"},
	"body_too_large":     {http.StatusRequestEntityTooLarge, "The body is too large"},
	"body_incomplete":    {http.StatusRequestTimeout, "The body did not arrive whole"},
	"body_required":      {http.StatusBadRequest, "The body is empty"},
	"invalid_json":       {http.StatusBadRequest, "The body is not one JSON object"},
	"duplicate_field":    {http.StatusBadRequest, "A name comes twice in the body"},
	"nested_value":       {http.StatusBadRequest, "The body has an object or a list where none belongs"},
	"unknown_field":      {http.StatusBadRequest, "The body has a field that does not exist"},
	"campaign_invalid":   {http.StatusBadRequest, "This can't be the id of a campaign"},
	"request_id_invalid": {http.StatusBadRequest, "This can't be a request id"},
	"request_id_required": {http.StatusBadRequest,
		"A user may have several packets of this campaign, so each grab needs a request id"},
	"fact_missing":     {http.StatusForbidden, "The token lacks a fact that the campaign's limits count by"},
	"unknown_campaign": {http.StatusNotFound, "There is no such campaign"},
	"busy": {http.StatusServiceUnavailable,
		"Nothing is decided yet: grants come faster than they are settled"},
	"frozen": {http.StatusServiceUnavailable, "Nothing is decided yet: the campaign is frozen"},
	"not_durable": {http.StatusServiceUnavailable,
		"Nothing is told yet: what the user holds is not as safe as the campaign promises"},
	"unavailable":     {http.StatusServiceUnavailable, "Nothing happened: a server behind this one does not answer"},
	"outcome_unknown": {http.StatusServiceUnavailable, "The grab may or may not have been decided"},
}

// problem is a refusal of one request.
type problem struct {
	code, detail string
	wait         time.Duration // for Retry-After; 0 for none
	cause        error         // for the log only
}

func (p *problem) Error() string { return p.code + ": " + p.detail }
func (p *problem) Unwrap() error { return p.cause }

func refuse(code, detail string) error { return &problem{code: code, detail: detail} }

// Problem is the body of an answer that refuses, by RFC 9457.
type Problem struct {
	Type     string `json:"type" doc:"Always about:blank: the code tells the kinds apart."`
	Title    string `json:"title" doc:"What the code means."`
	Status   int    `json:"status" doc:"The HTTP status."`
	Detail   string `json:"detail" doc:"What to do about it."`
	Instance string `json:"instance" doc:"The X-Request-Id of this answer, for the server's log."`
	Code     string `json:"code" doc:"What went wrong; docs/http.md lists the codes."`
}

// fail writes an error. The class of one that does not come from this package says what the caller has to do.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem
	if !errors.As(err, &p) {
		p = ofClass(err)
	}
	what, id := refusals[p.code], w.Header().Get(requestIDHeader)
	fields := []zap.Field{
		zap.String("request_id", id), zap.String("method", r.Method), zap.String("path", r.URL.Path),
		zap.Int("status", what.status), zap.String("problem", p.code), zap.NamedError("cause", p.cause),
	}
	if p.cause != nil && what.status >= http.StatusInternalServerError && !errors.Is(p.cause, context.Canceled) {
		s.log.Warn("a request failed", fields...)
	} else {
		s.log.Debug("a request was refused", fields...)
	}
	if p.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.wait+time.Second-1)/time.Second)))
	}
	writeAs(w, what.status, "application/problem+json", Problem{
		Type: "about:blank", Title: what.title, Status: what.status, Detail: p.detail, Instance: id, Code: p.code,
	})
}

// ofClass is the answer to an error of a server behind this one.
func ofClass(err error) *problem {
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient, hongbao.ClassBroken:
		return &problem{code: "unavailable", detail: "send the same request again", wait: time.Second, cause: err}
	case hongbao.ClassPermanent, hongbao.ClassConflict, hongbao.ClassUnknown:
	}
	return &problem{code: "outcome_unknown", detail: "send the same request again, with the same request id",
		wait: time.Second, cause: err}
}

// writeJSON answers 200.
func writeJSON(w http.ResponseWriter, v any) { writeAs(w, http.StatusOK, "application/json", v) }

// writeAs sends JSON. The status line is gone when the body fails, so nothing more can be told to the caller.
func writeAs(w http.ResponseWriter, status int, kind string, v any) {
	data, err := json.Marshal(v)
	if err != nil { // no type of this package does so
		panic(fmt.Sprintf("an answer of type %T can't be written as JSON: %v", v, err))
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
