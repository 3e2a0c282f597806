package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/payment"
	"github.com/hongbao-project/hongbao/internal/web"
)

// problem is an answer that refuses.
type problem struct {
	status        int
	code, message string
	cause         error // for the log only
}

func (p *problem) Error() string { return p.code + ": " + p.message }
func (p *problem) Unwrap() error { return p.cause }

func refuse(status int, code, message string) error {
	return &problem{status: status, code: code, message: message}
}

func newRequestID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// admit checks method, token and room, before anything of the request's body is read, and does what the method's
// endpoint does. It gives the client whose token came.
func (b *Balance) admit(w http.ResponseWriter, r *http.Request, endpoints []endpoint) (client string, err error) {
	e, err := choose(w, r.Method, endpoints)
	if err != nil {
		return "", err
	}
	if e.open {
		return "", e.do(w, r, "")
	}
	token, err := b.authenticate(w, r)
	if err != nil {
		return "", err
	}
	if e.scope != "" && !slices.Contains(token.Scopes, e.scope) {
		return token.Client, refuse(http.StatusForbidden, "forbidden",
			"the token is not good for this; it needs scope "+string(e.scope))
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
		return token.Client, e.do(w, r, token.Client)
	default:
		return token.Client, refuse(http.StatusServiceUnavailable, "busy", "too many requests are under way; come back")
	}
}

// choose gives the endpoint for a method.
func choose(w http.ResponseWriter, method string, endpoints []endpoint) (*endpoint, error) {
	methods := make([]string, len(endpoints))
	for i := range endpoints {
		if methods[i] = endpoints[i].method; methods[i] == "" || methods[i] == method {
			return &endpoints[i], nil
		}
	}
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	return nil, refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this path takes "+allow+" only")
}

func (b *Balance) authenticate(w http.ResponseWriter, r *http.Request) (*payment.ClientToken, error) {
	valid, err := b.tokens.current(r.Context())
	if err != nil {
		return nil, unread(err)
	}
	token := web.Bearer(r)
	sum := sha256.Sum256([]byte(token))
	// What a look-up by the hash takes tells nothing of the token.
	known := valid.byHash[hex.EncodeToString(sum[:])]
	if known == nil || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return nil, refuse(http.StatusUnauthorized, "unauthorized",
			"send a token that is valid here as Authorization: Bearer ...")
	}
	return known, nil
}

// fail writes an error. The class of one that comes from the book says what the caller has to do.
func (b *Balance) fail(w http.ResponseWriter, id string, err error, fields ...zap.Field) {
	var p *problem
	if !errors.As(err, &p) {
		p = ofClass(err)
	}
	fields = append(fields, zap.String("request_id", id), zap.Int("status", p.status), zap.String("code", p.code),
		zap.NamedError("cause", p.cause))
	if p.status >= http.StatusInternalServerError {
		b.log.Warn("a request failed", fields...)
	} else {
		b.log.Info("a request was refused", fields...)
	}
	switch {
	case errors.Is(err, payment.ErrFundExhausted):
		w.Header().Set("Retry-After", "10") // a person has to fill the fund
	case p.status == http.StatusServiceUnavailable || p.status == http.StatusConflict:
		w.Header().Set("Retry-After", "1")
	}
	write(w, p.status, map[string]string{"code": p.code, "message": p.message, "request_id": id})
}

func ofClass(err error) *problem {
	switch {
	case errors.Is(err, payment.ErrKeyReused):
		return &problem{http.StatusUnprocessableEntity, "idempotency_key_reused",
			"the key was used for another credit; a new credit needs a new key", err}
	case errors.Is(err, payment.ErrFundExhausted):
		return &problem{http.StatusServiceUnavailable, "fund_exhausted",
			"nothing was booked: the client's fund does not cover it; once it is filled, send the same request again", err}
	case errors.Is(err, payment.ErrReferenceReused):
		return &problem{http.StatusUnprocessableEntity, "reference_reused",
			"the reference was used for another credit; GET it to see which", err}
	}
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient:
		return &problem{http.StatusServiceUnavailable, "unavailable", "nothing was booked; send the same request again", err}
	case hongbao.ClassPermanent:
		return &problem{http.StatusUnprocessableEntity, "credit_refused",
			"this credit can't be booked: the account's balance would be out of range", err}
	case hongbao.ClassConflict, hongbao.ClassBroken, hongbao.ClassUnknown:
	}
	return &problem{http.StatusInternalServerError, "outcome_unknown",
		"it may or may not have been booked; send the same request with the same key again", err}
}

// write sends JSON. The status line is gone when the body fails, so nothing more can be told to the caller.
func write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"code":"outcome_unknown"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
