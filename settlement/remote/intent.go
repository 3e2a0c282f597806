package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// A remote that is not idempotent may book a second request. The claim in Redis says that there was a first one; the intent in
// the ledger says so when Redis has lost the claim. It is noted before the first request, and removed only when certainly nothing was booked.

// errLostClaim says why a credit is in doubt without a request of this call.
var errLostClaim = errors.New("it was about to be sent before, under a claim that Redis does not have any more")

// intends notes the item's intent under the claim. False: it must not be sent now, and the item tells why.
func (h *Handler) intends(ctx context.Context, it *item, claim string) bool {
	if unsent, found := h.unsent.LoadAndDelete(it.credit.Reference); found {
		claim, _ = unsent.(string) // nothing else is stored
	}
	for range 2 { // the second time after a note that is void
		by, since, err := h.ledger.ledger.Intend(ctx, it.grant, claim)
		if err != nil { // it may be noted all the same
			h.unsent.Store(it.credit.Reference, claim)
			it.fate, it.err = fateFresh, wrap(err, "nothing was sent now")
			return false
		}
		if by == claim {
			it.intent, it.fate, it.err = claim, fateOpen, nil
			return true
		}
		if !h.void(ctx, it, since) {
			return false
		}
		if err := h.ledger.ledger.Forget(ctx, it.grant, by); err != nil {
			it.err = wrap(err, "nothing was sent now")
			return false
		}
	}
	it.fate, it.err = fateFresh, hongbao.Errorf(hongbao.Transient, "credit %s: %w; another worker is at it", it.credit.Reference, errLostClaim)
	return false
}

// void tells whether the intent of another claim came to nothing. If not the item tells what became of it; as nothing was sent under
// the item's own claim, that one goes and the intent stays.
func (h *Handler) void(ctx context.Context, it *item, since time.Time) bool {
	it.last = result{verdict: Unknown, err: errLostClaim}
	if age := h.now().Sub(since); age < h.cfg.ClaimTime {
		it.fate, it.err = fateFresh, hongbao.Errorf(hongbao.Transient, "credit %s: %w; that was %s ago, and its worker may still be at it",
			it.credit.Reference, errLostClaim, age.Round(time.Millisecond))
		return false
	}
	h.resolve(ctx, it, since)
	if it.fate == fateOpen {
		it.fate = fateFresh
		return false
	}
	return it.fate == fateFresh
}

// forget removes the intents of items that were certainly not booked: each can be sent again by whoever has it then.
func (h *Handler) forget(ctx context.Context, items []*item) {
	for _, it := range items {
		if it.intent == "" || it.fate != fateFresh && it.fate != fateRejected {
			continue
		}
		// Known is known, though the lease is lost; and the intent of another claim stays.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		if err := h.ledger.ledger.Forget(ctx, it.grant, it.intent); err != nil {
			h.unsent.Store(it.credit.Reference, it.intent)
			it.err = fmt.Errorf("%w; its note in the ledger could not be removed: %s", it.err, err.Error())
		}
		cancel()
	}
}
