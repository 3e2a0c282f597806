package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
)

// result is the outcome on one credit, with the reason.
type result struct {
	outcome CreditOutcome
	err     error
	// outage says that the failure concerns the whole remote.
	outage bool
	// bare says that the remote refused without an error code, so it is unclear whom the refusal concerns. waits says
	// that the grant waits until this is clear: see refusals.
	bare, waits bool
	// late says that the time was over before the request, or that no slot was free. The credit is not at fault.
	late bool
	// clash says that the remote has a different credit under the key or the reference.
	clash bool
	// after is the pause that the remote asked for; 0 if none.
	after time.Duration
}

var errStatus = errors.New("the remote answered")

// request sends one request if the gate allows it. Otherwise it returns the reason as a result.
func (h *Handler) request(ctx context.Context, method, path, key string, body []byte, most int64) (a answer,
	unsent *result) {
	err := h.gate.Do(ctx, func() httpsink.Seen {
		a = h.do(ctx, method, path, key, body, most)
		if a.retryAfter = min(a.retryAfter, h.cfg.MaxRetryAfter); a.retryAfter > 0 && concernsAll(a.status) {
			h.gate.Silence(a.retryAfter)
		}
		switch {
		case ctx.Err() != nil && a.err != nil:
			return httpsink.Nothing
		case a.err != nil || a.status >= http.StatusInternalServerError || a.status/100 == 3: // a redirect: the URL is wrong
			return httpsink.Fails
		}
		return httpsink.Works
	})
	switch {
	case errors.Is(err, httpsink.ErrLate):
		return answer{}, &result{outcome: NotSent, err: err, late: true}
	case err != nil:
		return answer{}, &result{outcome: NotSent, err: err, outage: true}
	}
	return a, nil
}

// concernsAll reports whether a status concerns the whole remote and not only one credit.
func concernsAll(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// post requests the credit of one item.
func (h *Handler) post(ctx context.Context, it *item) result {
	body := it.credit
	body.Key = ""
	a, unsent := h.request(inTrace(ctx, it.grant), http.MethodPost, "/v1/credits", it.credit.Key,
		encode(body), h.cfg.BodyBytes)
	if unsent != nil {
		return *unsent
	}
	it.sent = true
	r, failed := h.failure(&a)
	if !failed {
		r = h.oneResult(a.status, a.body, a.retryAfter, &it.credit)
	}
	return h.attribute(&h.credits, it.credit.Account, r)
}

// failure returns the result of a request that got no complete response.
func (h *Handler) failure(a *answer) (result, bool) {
	switch {
	case a.err == nil:
		return result{}, false
	case !a.sent:
		return result{outcome: NotSent, err: fmt.Errorf("no connection, nothing was sent: %w", a.err), outage: true}, true
	case a.status != 0 && h.cfg.outcomeOf(a.status, "") != Done:
		// The status alone decides: a body would only add details for people.
		r := h.cfg.ofAnswer(a.status, "", fmt.Errorf("%w %d: %w", errStatus, a.status, a.err))
		r.after = a.retryAfter
		return r, true
	}
	return result{outcome: Unknown, err: a.err}, true
}

// oneResult returns the result of a complete response to a request for one credit.
func (h *Handler) oneResult(status int, body []byte, after time.Duration, want *credit) result {
	o, err := flatjson.Parse(body, "", 0)
	c, _ := o.Text("code")
	if h.cfg.outcomeOf(status, c) != Done {
		r := h.cfg.ofAnswer(status, c, fmt.Errorf("%w %d %.40q", errStatus, status, c))
		r.after = after
		return r
	}
	if err != nil {
		return result{outcome: Unknown, err: fmt.Errorf("%w %d: %w: %w", errStatus, status, errBody, err)}
	}
	if err := want.compare(o); err != nil {
		return result{outcome: Unknown, err: fmt.Errorf("%w %d: %w", errStatus, status, err)}
	}
	return result{outcome: Done}
}

// get queries a credit by its reference. Done: the body has the remote's credit. NotSent: the remote does not have the
// credit now. Unknown: the query failed.
func (h *Handler) get(ctx context.Context, reference string) ([]byte, result) {
	a, unsent := h.request(ctx, http.MethodGet, "/v1/credits/"+url.PathEscape(reference), "", nil, h.cfg.BodyBytes)
	switch {
	case unsent != nil:
		return nil, result{outcome: Unknown, err: unsent.err, outage: unsent.outage, late: unsent.late}
	case a.err != nil:
		return nil, result{outcome: Unknown, err: fmt.Errorf("the query failed: %w", a.err), outage: !a.sent}
	case a.status == http.StatusNotFound && code(a.body) == codeNotFound: // any other 404 may come from a wrong address
		return nil, result{outcome: NotSent, err: fmt.Errorf("the remote has no credit %s", reference)}
	case a.status != http.StatusOK:
		r := h.cfg.ofAnswer(a.status, code(a.body), fmt.Errorf("the query: %w %d", errStatus, a.status))
		r.outcome, r.clash, r.after = Unknown, false, a.retryAfter
		return nil, r
	}
	return a.body, result{outcome: Done}
}

// query queries the credit of an item. Done: the remote has it as requested. clash: the remote has it, but it differs.
func (h *Handler) query(ctx context.Context, it *item) result {
	body, r := h.get(ctx, it.credit.Reference)
	if r.outcome == Unknown {
		return h.attribute(&h.questions, it.credit.Account, r)
	}
	h.questions.pass(it.credit.Account)
	if r.outcome == NotSent {
		return r
	}
	o, err := flatjson.Parse(body, "", 0)
	if err != nil {
		return result{outcome: Unknown, err: fmt.Errorf("the query: %w: %w", errBody, err)}
	}
	err = it.credit.compare(o)
	if reference, _ := o.Text("reference"); errors.Is(err, errEcho) && reference == it.credit.Reference {
		return result{outcome: Unknown, clash: true, err: fmt.Errorf("the remote has a different credit %s", reference)}
	}
	if err != nil {
		return result{outcome: Unknown, err: fmt.Errorf("the query: %w", err)}
	}
	return result{outcome: Done}
}
