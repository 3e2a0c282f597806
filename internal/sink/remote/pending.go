package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// maxBegun bounds what is noted in the ledger in one transaction. A remote that is not idempotent has a lower bound,
// maxBlind. Its credits are recorded when all of the transaction's credits were answered, and until then only this
// process knows of them.
const maxBegun, maxBlind = 5_000, 32

// maxRounds bounds how often credits that were asked for before, and are not booked, are noted again.
const maxRounds = 3

// settle brings the items to the remote and then to the ledger.
func (h *Handler) settle(ctx context.Context, items []*item) {
	for range maxRounds {
		if len(items) == 0 {
			return
		}
		if err := h.closed(); err != nil {
			failAll(items, err)
			return
		}
		items = h.round(ctx, items)
	}
}

// round asks for the items once. It returns the items that an earlier call asked for and that are certainly not booked:
// the next round sends them again.
func (h *Handler) round(ctx context.Context, items []*item) (again []*item) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ClaimTime)
	defer cancel()
	fresh, open := h.begin(ctx, items)
	switch {
	case h.cfg.Replay:
		h.each(len(fresh), 1, func(i, _ int) { h.repeat(ctx, fresh[i]) })
	case h.cfg.Verified == Done:
		for _, it := range fresh {
			it.outcome = outcomeBooked
		}
	default:
		h.push(ctx, fresh)
		for _, it := range fresh {
			if it.outcome == outcomeOpen {
				open = append(open, it)
			}
		}
	}
	// After all were sent, so that their pauses delay no other grant.
	h.each(len(open), 1, func(i, _ int) { h.resolve(ctx, open[i]) })
	h.record(ctx, items)
	return h.forget(ctx, items)
}

// begin notes the items in the ledger. No worker has asked for the fresh ones yet; open ones may be booked; the others
// have their outcome.
func (h *Handler) begin(ctx context.Context, items []*item) (fresh, open []*item) {
	grants := make([]hongbao.Grant, 0, len(items))
	at := make(map[string]*item, len(items))
	for _, it := range items {
		it.outcome, it.err, it.batch, it.rejected, it.sent = outcomeUnbooked, nil, 0, nil, false
		if h.known.isBooked(it.credit.Reference) {
			it.outcome = outcomeBooked
			continue
		}
		grants = append(grants, *it.grant)
		at[it.credit.Reference] = it
	}
	if len(grants) == 0 {
		return nil, nil
	}
	call := payment.Asking{Owner: h.owner, Batch: rand.Int64() | 1, OwnedFor: h.cfg.ClaimTime, SinceGrant: h.cfg.Replay}
	held, before, err := h.ledger.Begin(ctx, call, grants)
	if err != nil {
		for reference, it := range at {
			if hongbao.ClassOf(err) == hongbao.ClassUnknown { // they may be noted after all
				h.known.setUnsent(reference, call.Batch)
			}
			it.err = fmt.Errorf("credit %s was not asked for: %w", reference, err)
		}
		return nil, nil
	}
	now := h.now() // later than the ledger's: nothing counts as older than it is
	for i := range held {
		it := at[h.keyOf(&held[i])]
		delete(at, it.credit.Reference)
		if h.recorded(it, &held[i]) {
			fresh = append(fresh, it)
		}
	}
	for i := range before {
		it := at[h.keyOf(&before[i].Grant)]
		delete(at, it.credit.Reference)
		it.first, it.asked = now.Add(-before[i].Age), now.Add(-before[i].Idle)
		if h.mayBeBooked(it, &before[i], call.BatchOf(&before[i])) {
			open = append(open, it)
		}
	}
	for _, it := range items {
		if at[it.credit.Reference] == it {
			h.known.forgetUnsent(it.credit.Reference, 0)
			it.first, it.asked, it.batch, it.outcome = h.first(it, now), now, call.Batch, outcomeOpen
			fresh = append(fresh, it)
		}
	}
	return fresh, open
}

func (h *Handler) keyOf(g *hongbao.Grant) string { return Key(h.cfg.Deployment, g.Campaign, g.Packet) }

// recorded compares an item with the ledger's grant of its packet, which the remote has credited before. It returns
// true for a replay, which asks the remote all the same.
func (h *Handler) recorded(it *item, row *hongbao.Grant) bool {
	if !h.same(it, row, "has") {
		return false
	}
	it.first = h.first(it, h.now())
	if h.cfg.Replay {
		it.outcome = outcomeOpen
		return true
	}
	it.outcome = outcomeBooked
	return false
}

// same reports whether the ledger's row is the item's grant; if not, the item is a contradiction.
func (h *Handler) same(it *item, row *hongbao.Grant, has string) bool {
	g := it.grant
	if row.User == g.User && row.Amount == g.Amount && row.Shard == g.Shard && row.Seq == g.Seq {
		return true
	}
	it.err = hongbao.Errorf(hongbao.ClassConflict, "%w: the ledger %s packet %d of campaign %s as event %s, amount %d; "+
		"it came as event %s, amount %d, or for another user: nothing was sent, a person decides", ErrContradiction, has,
		g.Packet, g.Campaign,
		row.EventID(), row.Amount,
		g.EventID(), g.Amount)
	return false
}

// mayBeBooked reports whether an item with a row in table pending may be booked. It returns false if another worker
// owns the row, or if certainly no request was sent.
func (h *Handler) mayBeBooked(it *item, p *payment.Pending, batch int64) bool {
	if !h.same(it, &p.Grant, "notes as about to be credited") {
		return false
	}
	if !p.Taken {
		it.err = hongbao.Heldf("credit %s was asked for %s ago by a worker that may still be at it", it.credit.Reference,
			p.Idle)
		return false
	}
	it.batch = batch
	if h.known.forgetUnsent(it.credit.Reference, p.Batch) {
		it.resend = true
		it.err = hongbao.Errorf(hongbao.ClassTransient, "credit %s was noted, but not asked for; it is noted again",
			it.credit.Reference)
		return false
	}
	it.outcome, it.last = outcomeOpen, result{verdict: Unknown, err: errAsked}
	return true
}

// errAsked says why a credit is in doubt without a request of this call.
var errAsked = errors.New("it may have been asked for before")

// record passes what the remote has credited to the ledger, which deletes the row in table pending. If the ledger does
// not accept it, this process knows that it is booked, and others find the row.
func (h *Handler) record(ctx context.Context, items []*item) {
	var list []*item
	var grants []hongbao.Grant
	for _, it := range items {
		if it.outcome == outcomeBooked {
			list, grants = append(list, it), append(grants, *it.grant)
		}
	}
	if len(list) == 0 {
		return
	}
	// A certain result stays true when the lease is lost: it is recorded all the same, and never twice for one grant.
	left := endTime
	if deadline, ok := ctx.Deadline(); ok {
		left = max(left, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	errs := h.ledger.Record(ctx, grants)
	for i, it := range list {
		reference := it.credit.Reference
		switch {
		case errs == nil || len(errs) == len(list) && errs[i] == nil:
			it.err = nil
			h.known.setBooked(reference, false)
			continue
		case len(errs) != len(list):
			it.err = hongbao.Errorf(hongbao.ClassBroken, "the ledger returned %d errors for %d grants: it is unknown which "+
				"grants it has", len(errs), len(list))
		default:
			it.err = fmt.Errorf("credit %s is booked, but not recorded in the ledger: %w", reference, errs[i])
		}
		if it.outcome = outcomeOpen; it.credit.Amount > 0 {
			h.known.setBooked(reference, true)
		}
	}
}

// endTime limits how long the ledger may take to record the known results at the end of a round.
const endTime = 5 * time.Second

// forget deletes the rows of items that are certainly not booked: the next worker sends them. It returns those that
// this call must send again.
func (h *Handler) forget(ctx context.Context, items []*item) (again []*item) {
	rows := map[int64][]*item{}
	for _, it := range items {
		if it.batch != 0 && (it.outcome == outcomeUnbooked || it.outcome == outcomeRejected) {
			rows[it.batch] = append(rows[it.batch], it)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	for batch, list := range rows {
		grants := make([]hongbao.Grant, len(list))
		for i, it := range list {
			grants[i] = *it.grant
		}
		err := h.ledger.Forget(ctx, batch, grants)
		for _, it := range list {
			switch {
			case err != nil:
				h.known.setUnsent(it.credit.Reference, batch)
				it.err = fmt.Errorf("%w; and it is still noted: %w", err, it.err)
			case it.resend:
				it.resend = false
				again = append(again, it)
			}
		}
	}
	return again
}

func failAll(items []*item, err error) {
	for _, it := range items {
		it.err = err
	}
}
