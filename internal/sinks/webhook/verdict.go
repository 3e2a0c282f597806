package webhook

import "net/http"

// verdict is the conclusion from the status of an answer.
type verdict string

const (
	accepted    verdict = "accepted"
	refused     verdict = "refused"
	misdirected verdict = "misdirected"
	unavailable verdict = "unavailable"
	failed      verdict = "failed"
	odd         verdict = "odd"
)

// ofStatus has the verdicts that do not follow from the first digit of the status.
var ofStatus = map[int]verdict{
	// The body is what differs between events.
	http.StatusBadRequest:            refused,
	http.StatusRequestEntityTooLarge: refused,
	http.StatusUnprocessableEntity:   refused,

	// The endpoint, the signature and the headers are the same for every event, or have the same form.
	http.StatusUnauthorized:                misdirected,
	http.StatusPaymentRequired:             misdirected,
	http.StatusForbidden:                   misdirected,
	http.StatusNotFound:                    misdirected,
	http.StatusMethodNotAllowed:            misdirected,
	http.StatusNotAcceptable:               misdirected,
	http.StatusProxyAuthRequired:           misdirected,
	http.StatusGone:                        misdirected,
	http.StatusLengthRequired:              misdirected,
	http.StatusRequestURITooLong:           misdirected,
	http.StatusUnsupportedMediaType:        misdirected,
	http.StatusExpectationFailed:           misdirected,
	http.StatusMisdirectedRequest:          misdirected,
	http.StatusUpgradeRequired:             misdirected,
	http.StatusPreconditionRequired:        misdirected,
	http.StatusRequestHeaderFieldsTooLarge: misdirected,
	http.StatusUnavailableForLegalReasons:  misdirected,

	http.StatusTooManyRequests:    unavailable,
	http.StatusServiceUnavailable: unavailable,

	http.StatusRequestTimeout: failed,
	http.StatusTooEarly:       failed,
}

// verdictOf returns the verdict on a status.
func verdictOf(status int) verdict {
	v, known := ofStatus[status]
	switch {
	case known:
		return v
	case status < 200, status/100 == 3: // no receiver of webhooks, or a redirect
		return misdirected
	case status < 300:
		return accepted
	case status < 500: // for example 409: another request with the same id is being processed
		return odd
	}
	return failed
}
