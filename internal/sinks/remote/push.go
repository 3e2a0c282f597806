package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// push requests the credits of items that no worker has requested yet.
func (h *Handler) push(ctx context.Context, items []*item) {
	if h.cfg.BatchCredits > 0 && len(items) > 1 {
		h.each(len(items), h.cfg.BatchCredits, func(from, to int) { h.pushBatch(ctx, items[from:to]) })
	} else {
		h.each(len(items), 1, func(i, _ int) { h.conclude(items[i], h.post(ctx, items[i]), false) })
	}
}

// conclude sets the outcome of an item from a result. If repeated is set, an earlier request may have booked the item.
// A refusal or rejection then says nothing about that earlier request.
func (h *Handler) conclude(it *item, r result, repeated bool) {
	if r.late && it.sent && it.err != nil { // keep the error of the attempt that was made
		return
	}
	it.last = r
	switch {
	case r.outcome == Done:
		it.outcome, it.err = outcomeBooked, nil
	case r.outcome == Rejected && repeated:
		it.rejected = &r
		it.outcome, it.err = outcomeOpen, h.failed(it, hongbao.ClassUnknown, "was rejected as a repeat, and may be booked")
	case r.outcome == Rejected:
		it.outcome = outcomeRejected
		it.err = hongbao.Errorf(hongbao.ClassPermanent, "the remote refuses credit %s permanently: %w", it.credit.Reference,
			r.err)
	case r.outcome == NotSent && !repeated:
		it.outcome, it.err = outcomeUnbooked, h.failed(it, hongbao.ClassTransient, "was not sent")
	case r.outcome == Wait || r.outcome == NotSent:
		it.outcome, it.err = outcomeOpen, h.failed(it, hongbao.ClassTransient, "has to wait")
	default:
		it.outcome, it.err = outcomeOpen, h.failed(it, hongbao.ClassUnknown, "may or may not be booked")
	}
	if errors.Is(r.err, errEcho) {
		it.mismatches++
	}
}

func (h *Handler) failed(it *item, class hongbao.Class, how string) error {
	switch {
	case it.last.outage:
		return hongbao.Outagef(class, "credit %s %s: %w", it.credit.Reference, how, it.last.err)
	case it.last.late:
		return hongbao.Waitingf("credit %s %s: no request slot was free in time: %w", it.credit.Reference, how, it.last.err)
	case it.last.waits:
		return hongbao.Waitingf("credit %s %s, and no credit of another account has succeeded yet, so the refusal may concern "+
			"this account or all: %w",
			it.credit.Reference, how, it.last.err)
	}
	return hongbao.Errorf(class, "credit %s %s: %w", it.credit.Reference, how, it.last.err)
}

// conflict sets a Conflict error: a person must decide about the item. The pending row stays, so a requeued grant ends
// here again.
func (h *Handler) conflict(it *item, what error) {
	cause := it.last.err
	if cause == nil {
		cause = errors.New("another worker may have sent it")
	}
	it.outcome = outcomeOpen
	it.err = hongbao.Errorf(hongbao.ClassConflict, "credit %s: %w: %w; ask the owners of the remote, see "+
		"docs/remote-balance.md",
		it.credit.Reference, what, cause)
}

// resolve finds out whether an item is booked. It sends as many requests as Repeats and ctx allow.
func (h *Handler) resolve(ctx context.Context, it *item) {
	pause := h.cfg.Pause
	for try := 0; ; try++ {
		if decided := h.ask(ctx, it); decided || try == h.cfg.Repeats {
			return
		}
		wait := max(pause, it.last.after)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait+h.cfg.Timeout {
			return
		}
		if !retry.Pause(ctx, wait) {
			return
		}
		pause *= 2
	}
}

// ask tries to resolve an item with one request. It returns false if the outcome is still unknown, so that the caller
// can try again.
func (h *Handler) ask(ctx context.Context, it *item) bool {
	age := h.now().Sub(it.first)
	remembered := h.remembers(it.first)
	conflicting := it.last.clash || it.mismatches > 1
	switch {
	case remembered && it.rejected == nil && !conflicting && !(h.cfg.Queryable && it.mismatches > 0):
		if h.conclude(it, h.post(ctx, it), true); it.rejected != nil {
			return h.ask(ctx, it)
		}
		return it.outcome != outcomeOpen
	case h.cfg.Queryable:
		return h.lookUp(ctx, it)
	case conflicting:
		h.conflict(it, fmt.Errorf("%w: the remote has a different credit under its key", ErrContradiction))
	case h.cfg.Verified == Done:
		it.outcome, it.err = outcomeBooked, nil
	case h.verifiedUnbooked(it):
		h.unbooked(it, hongbao.Errorf(hongbao.ClassTransient, "credit %s was not booked, as a person verified; it is resent",
			it.credit.Reference))
	case it.rejected != nil:
		h.conflict(it, errors.New("the remote rejects its repeat, and can't be asked whether an earlier request was booked"))
	case h.cfg.idempotent():
		h.conflict(it, fmt.Errorf("its first request was sent %s ago, and the remote remembers keys for %s: a repeat could "+
			"pay twice", age.Round(time.Second), h.cfg.Retention))
	default:
		h.conflict(it, errors.New("it may have been sent, and the remote can neither repeat nor be asked: it is never sent "+
			"twice"))
	}
	return true
}

// lookUp tries to resolve an item with a query.
func (h *Handler) lookUp(ctx context.Context, it *item) bool {
	clashed := it.last.clash
	r := h.query(ctx, it)
	if r.clash { // query twice: one wrong response is not enough to alert a person
		r = h.query(ctx, it)
	}
	switch {
	case r.clash, r.outcome == NotSent && clashed:
		it.last = r
		h.conflict(it, fmt.Errorf("%w: the remote has a different credit under its key or reference", ErrContradiction))
	case r.outcome == NotSent && (h.verifiedUnbooked(it) || h.cfg.QueryFinal > 0 &&
		h.now().Sub(h.lastSent(it)) >= h.cfg.QueryFinal):
		it.last = r
		h.unbooked(it, h.failed(it, hongbao.ClassTransient, "was not booked and never will be; it is sent again"))
	case r.outcome == NotSent:
		r.outcome = Unknown // not yet, perhaps
		h.conclude(it, r, true)
		return false
	default:
		h.conclude(it, r, true)
		return it.outcome != outcomeOpen
	}
	return true
}

// unbooked says that none of an item's requests was booked. The item is sent again, unless its retry was rejected.
func (h *Handler) unbooked(it *item, err error) {
	if it.rejected != nil {
		h.conclude(it, *it.rejected, false)
		return
	}
	it.outcome, it.resend, it.err = outcomeUnbooked, true, err
}

// lastSent returns the latest time at which a request for an item may have been sent. A remote that is not idempotent
// gets only one request, from the first worker. An idempotent remote may get more requests, but only as long as the key
// is certainly remembered.
func (h *Handler) lastSent(it *item) time.Time {
	began := it.first
	if h.cfg.idempotent() {
		if began = it.first.Add(h.cfg.Retention - h.cfg.Margin); it.asked.Before(began) {
			began = it.asked
		}
	}
	return began.Add(h.cfg.ClaimTime)
}

// verifiedUnbooked reports whether a person has verified that none of an item's requests was booked.
func (h *Handler) verifiedUnbooked(it *item) bool {
	return h.cfg.Verified == NotSent && h.lastSent(it).Before(h.cfg.VerifiedAt)
}

// pushBatch requests the credits of items in one batch request. An item without a result in the response stays open.
func (h *Handler) pushBatch(ctx context.Context, items []*item) {
	list := make([]credit, len(items))
	for i, it := range items {
		list[i] = it.credit
	}
	body := encode(map[string]any{"credits": list})
	a, unsent := h.request(ctx, http.MethodPost, "/v1/credits:batch", "", body, h.cfg.BodyBytes*int64(len(items)))
	for i, r := range h.batchResults(&a, unsent, items) {
		items[i].sent = unsent == nil
		if it := items[i]; r.bare && a.status != http.StatusOK { // one item may be the reason: request each alone
			alone := h.post(ctx, it)
			h.conclude(it, alone, alone.outcome == Rejected || mayFollowBooking(a.status))
		} else {
			h.conclude(it, h.attribute(&h.credits, it.credit.Account, r), false)
		}
	}
}

// batchResults returns one result for each item, in the order of the items.
func (h *Handler) batchResults(a *answer, unsent *result, items []*item) []result {
	all := func(r result) []result {
		if r.outcome == Rejected { // the rejection does not say which item it concerns
			r.outcome = Unknown
		}
		list := make([]result, len(items))
		for i := range list {
			list[i] = r
		}
		return list
	}
	if unsent != nil {
		return all(*unsent)
	}
	if r, failed := h.failure(a); failed {
		return all(r)
	}
	if a.status != http.StatusOK {
		c := code(a.body)
		r := h.cfg.ofAnswer(a.status, c, fmt.Errorf("the batch: %w %d %.40q", errStatus, a.status, c))
		if r.after = a.retryAfter; r.outcome == Done {
			r.outcome = Unknown
		}
		return all(r)
	}
	o, err := flatjson.Parse(a.body, "results", len(items))
	answers, ok := o["results"].([]flatjson.Object)
	if err != nil || !ok || len(answers) != len(items) {
		return all(result{outcome: Unknown, err: fmt.Errorf("the batch: %w: want a list of %d results", errBody, len(items))})
	}
	list := make([]result, len(items))
	for i, it := range items {
		list[i] = h.partResult(answers[i], &it.credit)
	}
	return list
}

// partResult returns the result for one credit of a batch response. The status has the same meaning as in a response to
// a single request.
func (h *Handler) partResult(o flatjson.Object, want *credit) result {
	status, err := o.Integer("status", 599)
	if err != nil {
		return result{outcome: Unknown, err: fmt.Errorf("the batch: %w: status: %w", errBody, err)}
	}
	c, _ := o.Text("code")
	r := h.cfg.ofAnswer(int(status), c, fmt.Errorf("in a batch: %w %d %.40q", errStatus, status, c))
	if r.outcome == Done {
		if err := want.compare(o); err != nil {
			return result{outcome: Unknown, err: fmt.Errorf("in a batch: %w", err)}
		}
		r.err = nil
	}
	return r
}
