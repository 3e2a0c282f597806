package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// first returns the earliest time at which a worker may have requested the credit of an item.
func (h *Handler) first(it *item, now time.Time) time.Time {
	if h.cfg.Replay && it.grant.Time.Before(now) {
		return it.grant.Time
	}
	return now
}

// remembers reports whether the remote certainly still remembers the key of a request that was first sent at the time
// first.
func (h *Handler) remembers(first time.Time) bool {
	return h.cfg.idempotent() && h.now().Sub(first) < h.cfg.Retention-h.cfg.Margin
}

// repeat is the replay of one item. It requests or queries a credit that may already be booked, but never requests a
// credit that could be new to the remote. If it sends no request, the pending row is deleted.
func (h *Handler) repeat(ctx context.Context, it *item) {
	if h.remembers(it.first) {
		r := h.post(ctx, it)
		// A rejection says nothing about earlier requests.
		if h.conclude(it, r, r.outcome == Rejected); it.outcome == outcomeOpen {
			h.resolve(ctx, it)
		}
		return
	}
	age := h.now().Sub(it.first).Round(time.Second)
	if !h.cfg.Queryable {
		h.conflict(it, fmt.Errorf("it may have been sent up to %s ago, and the remote remembers keys for %s: a repeat "+
			"could pay twice", age, h.cfg.Retention))
		it.outcome = outcomeUnbooked
		return
	}
	h.find(ctx, it, fmt.Sprintf("it may have been sent up to %s ago, and the remote remembers keys for %s: it is not "+
		"sent again", age, h.cfg.Retention))
}

// find queries the remote for the credit of an item, which counts as booked if the remote has it as requested. If the
// remote does not have it, the item is a conflict with this reason.
func (h *Handler) find(ctx context.Context, it *item, missing string) {
	r := h.query(ctx, it)
	switch {
	case r.outcome == Done:
		h.conclude(it, r, false)
		return
	case r.clash:
		it.last = r
		h.conflict(it, fmt.Errorf("%w: the remote has a different credit under its reference", ErrContradiction))
	case r.outcome == NotSent:
		it.last = r
		h.conflict(it, errors.New(missing))
	default:
		it.err = hongbao.Errorf(hongbao.ClassTransient, "look up credit %s: %w", it.credit.Reference, r.err)
		if it.last = r; r.outage || r.late {
			it.err = h.failed(it, hongbao.ClassTransient, "was not looked up")
		}
	}
	it.outcome = outcomeUnbooked
}
