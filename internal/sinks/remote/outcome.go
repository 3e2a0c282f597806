package remote

import (
	"net/http"
)

// CreditOutcome is the conclusion from a response about one credit.
type CreditOutcome string

// The outcomes.
const (
	NotSent  CreditOutcome = "NOT_SENT"
	Done     CreditOutcome = "DONE"
	Rejected CreditOutcome = "REJECTED"
	Wait     CreditOutcome = "WAIT"
	Unknown  CreditOutcome = "UNKNOWN"
)

// ofStatus has the outcome for each status of a response to a request for a credit. All other statuses are Unknown.
// This includes redirects, because some systems answer 303 after they have booked.
var ofStatus = map[int]CreditOutcome{
	http.StatusOK:      Done, // only if the response repeats the credit
	http.StatusCreated: Done, // likewise

	http.StatusAccepted:           Wait,
	http.StatusConflict:           Wait, // the same key is in progress
	http.StatusTooEarly:           Wait,
	http.StatusTooManyRequests:    Wait,
	http.StatusServiceUnavailable: Wait,

	http.StatusBadRequest:          Rejected,
	http.StatusPaymentRequired:     Rejected,
	http.StatusGone:                Rejected,
	http.StatusUnprocessableEntity: Rejected,

	// The remote refused the request before it looked at the credit. Without an error code, this may concern the
	// account or every request: see refusals.
	http.StatusUnauthorized:                NotSent,
	http.StatusForbidden:                   NotSent,
	http.StatusNotFound:                    NotSent,
	http.StatusMethodNotAllowed:            NotSent,
	http.StatusNotAcceptable:               NotSent,
	http.StatusLengthRequired:              NotSent,
	http.StatusRequestEntityTooLarge:       NotSent,
	http.StatusRequestURITooLong:           NotSent,
	http.StatusUnsupportedMediaType:        NotSent,
	http.StatusMisdirectedRequest:          NotSent,
	http.StatusRequestHeaderFieldsTooLarge: NotSent,
}

// mayFollowBooking reports whether a remote that refuses a batch with this status may have booked some of its credits
// before. The other refusing statuses are about the target, the credentials or the form of a request, so they come
// before a remote reads the credits. docs/remote-balance.md requires this.
func mayFollowBooking(status int) bool {
	return status == http.StatusForbidden || status == http.StatusNotAcceptable
}

// Error codes that mean more than their status. With the first two, the key or the reference belongs to another credit.
const (
	codeKeyReused       = "idempotency_key_reused"
	codeReferenceReused = "reference_reused"
	codeNotFound        = "credit_not_found"
)

// refusesCredit has the error codes that refuse one credit permanently. refusesAll has the codes that would refuse
// every request, because the configuration is wrong.
var (
	refusesCredit = map[string]bool{
		"account_invalid": true, "amount_out_of_range": true, "credit_refused": true, "currency_invalid": true,
		"reference_invalid": true,
	}
	refusesAll = map[string]bool{
		"body_too_large": true, "content_encoding": true, "content_type": true, "method_not_allowed": true,
		"not_found": true, "unauthorized": true,
	}
)

// outcomeOf returns the outcome for a status and an error code. If the remote is neither idempotent nor queryable, a
// Wait status could hide a booked credit. Only status 429 says that the remote has not started.
func (c *Config) outcomeOf(status int, code string) CreditOutcome {
	v, known := ofStatus[status]
	switch {
	case !known:
		return Unknown
	case code == codeKeyReused || code == codeReferenceReused:
		return Unknown // the remote has something under our key, so the credit must be checked
	case v == NotSent && refusesCredit[code]:
		return Rejected
	case v == Wait && !c.idempotent() && !c.Queryable:
		if status == http.StatusTooManyRequests {
			return NotSent
		}
		return Unknown
	}
	return v
}

// ofAnswer returns the result of a response that is not Done. err describes the response.
func (c *Config) ofAnswer(status int, code string, err error) result {
	r := result{outcome: c.outcomeOf(status, code), err: err, clash: code == codeKeyReused || code == codeReferenceReused}
	refused := r.outcome == NotSent && ofStatus[status] == NotSent
	r.bare = refused && !refusesAll[code]
	r.outage = concernsAll(status) || refused && !r.bare
	return r
}
