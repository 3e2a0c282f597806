package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/guard"
)

// Code describes an error code of a problem.
type Code struct {
	Status int
	Title  string
}

// codes has every error code. An error code never changes its meaning. AddCodes adds the codes that only one
// package uses.
var codes = map[string]Code{
	"not_found":          {http.StatusNotFound, "There is no such path"},
	"method_not_allowed": {http.StatusMethodNotAllowed, "The path does not take this method"},
	"host_unknown":       {http.StatusMisdirectedRequest, "The request is for another host"},
	"unauthorized":       {http.StatusUnauthorized, "The caller's credentials are missing or invalid"},
	"forbidden":          {http.StatusForbidden, "The caller's API key does not permit this"},
	"rate_limited":       {http.StatusTooManyRequests, "The caller makes too many requests"},
	"content_type":       {http.StatusUnsupportedMediaType, "The body is not application/json"},
	"content_encoding":   {http.StatusUnsupportedMediaType, "The body is encoded"},
	"body_too_large":     {http.StatusRequestEntityTooLarge, "The body is too large"},
	"body_incomplete":    {http.StatusRequestTimeout, "The body did not arrive completely"},
	"body_required":      {http.StatusBadRequest, "The body is empty"},
	"invalid_json":       {http.StatusBadRequest, "The body is not one JSON object"},
	"duplicate_field":    {http.StatusBadRequest, "A field occurs twice in the body"},
	"nested_value":       {http.StatusBadRequest, "The body has an unexpected object or list"},
	"unknown_field":      {http.StatusBadRequest, "The body has an unknown field"},
	"amount_not_integer_minor_units": {http.StatusBadRequest,
		"The amount is not an integer of minor units in plain digits"},
	"invalid_parameter":        {http.StatusBadRequest, "A query parameter is invalid"},
	"amount_out_of_range":      {http.StatusBadRequest, "The amount is out of range"},
	"idempotency_key_required": {http.StatusBadRequest, "The Idempotency-Key is missing or wrong"},
	"idempotency_key_reused":   {http.StatusUnprocessableEntity, "The Idempotency-Key was used for another request"},
	"campaign_invalid":         {http.StatusBadRequest, "This can't be the id of a campaign"},
	"unknown_campaign":         {http.StatusNotFound, "There is no such campaign"},
	"archived":                 {http.StatusGone, "The campaign's receipts are archived"},
	"busy":                     {http.StatusServiceUnavailable, "Nothing happened yet: the server is overloaded"},
	"refilling":                {http.StatusServiceUnavailable, "Nothing is decided yet: more packets are being loaded"},
	"frozen":                   {http.StatusServiceUnavailable, "Nothing is decided yet: the campaign is frozen"},
	"unavailable":              {http.StatusServiceUnavailable, "This try did nothing: a store behind this server does not answer"},
	"internal_error":           {http.StatusInternalServerError, "The server has a bug: the request may or may not have been carried out"},
	"outcome_unknown":          {http.StatusServiceUnavailable, "The request may or may not have been carried out"},
}

// AddCodes registers the error codes of a package, during the program's initialization, and returns them. It
// panics if a code already exists, because a code must mean the same on all listeners.
func AddCodes(own map[string]Code) map[string]Code {
	for code, what := range own {
		if has, ok := codes[code]; ok {
			panic(fmt.Sprintf("the code %q has two meanings, %q and %q: rename one of the two", code, has.Title, what.Title))
		}
		codes[code] = what
	}
	return own
}

// CodeOf returns the description of an error code. It panics for an unknown code, so that no undocumented code
// reaches a caller.
func CodeOf(code string) Code {
	what, ok := codes[code]
	if !ok {
		panic(fmt.Sprintf("the code %q does not exist; there are %v", code, slices.Sorted(maps.Keys(codes))))
	}
	return what
}

// Problem is the body of every error answer, as defined by RFC 9457.
type Problem struct {
	Type     string `json:"type" doc:"Always about:blank. The field 'code' tells what went wrong."`
	Title    string `json:"title" doc:"What the error code means, as text."`
	Status   int    `json:"status" doc:"The HTTP status of the answer."`
	Detail   string `json:"detail" doc:"What the caller should do about the problem, as text."`
	Instance string `json:"instance" doc:"The header X-Request-Id of this answer. The server's log has the same id."`
	Code     string `json:"code" doc:"What went wrong, as an error code. A code never changes its meaning."`
}

// Refusal is an error that becomes a Problem. Code and Detail quote nothing from the request.
type Refusal struct {
	Code, Detail string
	Wait         time.Duration // for Retry-After; 0: no such header
	Cause        error         // for the log only
}

func (e *Refusal) Error() string { return e.Code + ": " + e.Detail }
func (e *Refusal) Unwrap() error { return e.Cause }

// Refuse returns a Refusal without a cause, for a request with invalid content.
func Refuse(code, detail string) error { return &Refusal{Code: code, Detail: detail} }

// refusalOf converts an error to a Refusal. For an error that is no Refusal, the error's class decides.
func refusalOf(err error) *Refusal {
	var refused *Refusal
	if errors.As(err, &refused) {
		return refused
	}
	if errors.Is(err, guard.ErrPanic) {
		return &Refusal{Code: "internal_error", Cause: err, Detail: "tell the operator: the server's log has the cause; " +
			"if you send the same request again, keep its request id or Idempotency-Key"}
	}
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient, hongbao.ClassBroken:
		return &Refusal{Code: "unavailable", Detail: "send the same request again", Wait: time.Second, Cause: err}
	case hongbao.ClassPermanent, hongbao.ClassConflict, hongbao.ClassUnknown:
	}
	return &Refusal{Code: "outcome_unknown", Detail: "send the same request again, with the same request id",
		Wait: time.Second, Cause: err}
}

// Fail logs an error with Explain and answers with its problem.
func Fail(w http.ResponseWriter, r *http.Request, log *zap.Logger, refused zapcore.Level, err error) {
	h := w.Header()
	if h[RequestID] == nil {
		h[RequestID] = []string{newRequestID()}
	}
	p, wait := Explain(r, h.Get(RequestID), log, refused, err)
	if wait > 0 {
		h.Set("Retry-After", strconv.Itoa(wait))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if overdue(r) || p.Status == http.StatusRequestEntityTooLarge { // the rest of the body stays unread
		h["Connection"] = closeIt
	}
	writeAs(w, p.Status, []string{"application/problem+json"}, marshal(&p))
}

// failAfterPanic answers a request whose handler has panicked. If the answer has begun, it cuts the connection, because
// the caller must not take a part of an answer for the whole.
func failAfterPanic(w http.ResponseWriter, r *http.Request, log *zap.Logger, err error) {
	if w.Header()["Content-Type"] != nil {
		panic(http.ErrAbortHandler)
	}
	Fail(w, r, log, zap.DebugLevel, err)
}

// Explain logs an error. It returns the problem for the caller and the seconds before a retry, or 0. id is the
// answer's id. An error that the caller caused is logged at the level refused.
func Explain(r *http.Request, id string, log *zap.Logger, refused zapcore.Level, err error) (p Problem, wait int) {
	e := refusalOf(err)
	what := CodeOf(e.Code)
	cause := e.Cause
	if cause != nil && overdue(r) {
		cause = fmt.Errorf("%w: %w", errOverdue, cause)
	}
	fields := []zap.Field{
		zap.String("request_id", id), zap.String("method", r.Method), zap.String("path", shortened(r.URL.Path)),
		zap.Int("status", what.Status), zap.String("problem", e.Code), zap.NamedError("cause", cause),
	}
	switch {
	case what.Status < http.StatusInternalServerError:
		log.Log(refused, "a request was refused", fields...)
	case e.Cause != nil && (!errors.Is(e.Cause, context.Canceled) || overdue(r)):
		log.Warn("a request failed", fields...)
	default:
		log.Debug("a request was refused", fields...)
	}
	return Problem{
		Type: "about:blank", Title: what.Title, Status: what.Status, Detail: e.Detail, Instance: id, Code: e.Code,
	}, int((e.Wait + time.Second - 1) / time.Second)
}

// maxLogged is the maximum length of a path in the log, in bytes. Every valid path is shorter.
const maxLogged = 256

func shortened(path string) string {
	if len(path) > maxLogged {
		return strings.ToValidUTF8(path[:maxLogged], "") + "..."
	}
	return path
}

// Sampled returns a logger that writes at most ten lines a second for each message, because anyone may send
// requests.
func Sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, 10, 0)
	}))
}

// WriteJSON sends v as JSON. The type of v must always be encodable.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	writeAs(w, status, plainJSON, marshal(v))
}

// WriteText sends JSON text. It takes ownership of text.
func WriteText(w http.ResponseWriter, status int, text []byte) { writeAs(w, status, plainJSON, text) }

func marshal(v any) []byte {
	text, err := answers.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an answer of type %T can't be written as JSON: %v", v, err))
	}
	return text
}

// bufferedAnswer is the length below which net/http itself sets Content-Length.
const bufferedAnswer = 2 << 10

// writeAs sends JSON. It ignores an error of Write, because the status has already been sent.
func writeAs(w http.ResponseWriter, status int, kind []string, text []byte) {
	text = append(text, '\n')
	h := w.Header()
	h["Content-Type"] = kind
	if len(text) >= bufferedAnswer {
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, _ = w.Write(text)
}
