package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// first is since when the remote may have been asked for any of the items.
func (h *Handler) first(items []*item) time.Time {
	first := h.now()
	for _, it := range items {
		if h.cfg.Again && it.grant.Time.Before(first) {
			first = it.grant.Time
		}
	}
	return first
}

// remembers tells whether the remote surely still has the key of a request that was first sent then, or later.
func (h *Handler) remembers(first time.Time) bool {
	return h.cfg.idempotent() && h.now().Sub(first) < h.cfg.Retention-h.cfg.Margin
}

// repeat settles once more what may have been settled before, without ever sending it as a new credit. If nothing was sent its
// claim can go.
func (h *Handler) repeat(ctx context.Context, it *item) {
	first := h.first([]*item{it})
	if h.remembers(first) {
		if h.take(it, h.post(ctx, it), false); it.fate == fateOpen {
			h.resolve(ctx, it, first)
		}
		return
	}
	age := h.now().Sub(first).Round(time.Second)
	if !h.cfg.Queryable {
		h.conflict(it, fmt.Errorf("it may have been sent up to %s ago, and the remote remembers keys for %s: a repeat could pay twice", age, h.cfg.Retention))
		it.fate = fateFresh
		return
	}
	r := h.query(ctx, it)
	switch {
	case r.verdict == Done:
		h.take(it, r, false)
		return
	case r.clash:
		it.last = r
		h.conflict(it, fmt.Errorf("%w: the remote has something else under its reference", ErrContradiction))
	case r.verdict == NotSent:
		it.last = r
		h.conflict(it, fmt.Errorf("it may have been sent up to %s ago, and the remote remembers keys for %s: it is not sent again", age, h.cfg.Retention))
	default:
		it.err = hongbao.Errorf(hongbao.Transient, "look up credit %s: %w", it.credit.Reference, r.err)
		if r.outage {
			it.err = hongbao.Outagef(hongbao.Transient, "look up credit %s: %w", it.credit.Reference, r.err)
		}
	}
	it.fate = fateFresh
}
