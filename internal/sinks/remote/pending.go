package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// maxBegun limits the credits that one transaction of the ledger stores as pending. For a remote that is not
// idempotent, the limit is maxBlind. It is lower because credits are recorded only after the whole group was answered,
// and until then only this process knows about them.
const maxBegun, maxBlind = 5_000, 32

// maxRounds limits how often a credit is sent again within one call after it turned out not to be booked.
const maxRounds = 3

// settle requests the credits of the items, which are of one batch, from the remote, and records them in the ledger.
// epoch is that of the batch.
func (h *Handler) settle(ctx context.Context, epoch int64, items []*item) {
	for range maxRounds {
		if len(items) == 0 {
			return
		}
		if err := h.gate.Closed(); err != nil {
			failAll(items, err)
			return
		}
		items = h.round(ctx, epoch, items)
	}
}

// round requests or resolves each item once. It returns the items that were requested earlier and are certainly not
// booked: the next round sends them again.
func (h *Handler) round(ctx context.Context, epoch int64, items []*item) (again []*item) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ClaimTime)
	defer cancel()
	fresh, open := h.begin(ctx, epoch, items)
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
			if it.outcome == outcomeOpen && it.last.outcome != NotSent { // the next call sends the others again
				open = append(open, it)
			}
		}
	}
	// Resolve after everything was sent, so that the pauses delay no other grant.
	h.each(len(open), 1, func(i, _ int) { h.resolve(ctx, open[i]) })
	h.record(ctx, epoch, items)
	return h.forget(ctx, items)
}

// begin stores the items as pending in the ledger. It returns fresh items, which no worker has requested yet, and open
// items, which may be booked. The outcome of all other items is known.
func (h *Handler) begin(ctx context.Context, epoch int64, items []*item) (fresh, open []*item) {
	grants := make([]hongbao.Grant, 0, len(items))
	at := make(map[string]*item, len(items))
	for _, it := range items {
		it.outcome, it.err, it.batch, it.rejected, it.sent = outcomeUnbooked, nil, 0, nil, false
		if has, is := h.known.bookedAs(it.credit.Reference); is {
			if h.same(it, &has, "has yet to record") {
				it.outcome = outcomeBooked
			}
			continue
		}
		grants = append(grants, *it.grant)
		at[it.credit.Reference] = it
	}
	if len(grants) == 0 {
		return nil, nil
	}
	call := payment.CreditCall{Owner: h.owner, Batch: rand.Int64() | 1, OwnedFor: h.cfg.ClaimTime, SinceGrant: h.cfg.Replay}
	held, before, err := h.ledger.Begin(ctx, call,
		hongbao.Batch{Shard: grants[0].Shard, Epoch: epoch, Grants: grants})
	if err != nil {
		for reference, it := range at {
			if hongbao.ClassOf(err) == hongbao.ClassUnknown { // they may be stored all the same
				h.known.setUnsent(reference, call.Batch)
			}
			it.err = fmt.Errorf("credit %s was not requested: %w", reference, err)
		}
		return nil, nil
	}
	now := h.now() // taken after the ledger's time, so that no age is overestimated
	for i := range held {
		it := at[h.keyOf(&held[i].Grant)]
		delete(at, it.credit.Reference)
		if !held[i].Aside && h.recorded(it, &held[i].Grant) {
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

// recorded compares an item with the ledger's grant of the same packet, which the remote has credited. It returns true
// for a replay, which requests the credit again.
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

// same reports whether the ledger's row is the item's grant. If not, it sets a contradiction as the item's error.
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

// mayBeBooked reports whether an item with a pending row may be booked. It returns false if another worker owns the
// row, if the row differs from the grant, or if certainly no request was sent.
func (h *Handler) mayBeBooked(it *item, p *payment.Pending, batch int64) bool {
	if !h.same(it, &p.Grant, "has a pending credit for") {
		return false
	}
	if !p.Taken {
		it.err = hongbao.Waitingf("credit %s was requested %s ago by a worker that may still be active", it.credit.Reference,
			p.Idle)
		return false
	}
	it.batch = batch
	if h.known.forgetUnsent(it.credit.Reference, p.Batch) {
		it.resend = true
		it.err = hongbao.Errorf(hongbao.ClassTransient, "credit %s was pending, but not requested; it is tried again",
			it.credit.Reference)
		return false
	}
	it.outcome, it.last = outcomeOpen, result{outcome: Unknown, err: errAsked}
	return true
}

// errAsked is the cause of the doubt about a credit for which this call has sent no request.
var errAsked = errors.New("it may have been requested before")

// record records booked items in the ledger, which deletes their pending rows. If this fails, this process remembers
// that they are booked. Other workers find the rows. Items of one shard are adjacent.
func (h *Handler) record(ctx context.Context, epoch int64, items []*item) {
	booked := slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.outcome != outcomeBooked })
	for len(booked) > 0 {
		shard := booked[0].grant.Shard
		n := slices.IndexFunc(booked, func(it *item) bool { return it.grant.Shard != shard })
		if n < 0 {
			n = len(booked)
		}
		h.recordBatch(ctx, stream.Opening{Shard: shard, Epoch: epoch}, booked[:n])
		booked = booked[n:]
	}
}

func (h *Handler) recordBatch(ctx context.Context, in stream.Opening, list []*item) {
	grants := make([]hongbao.Grant, len(list))
	for i, it := range list {
		grants[i] = *it.grant
	}
	// The result is certain, so it is recorded even if the lease was lost. The ledger records each grant only once.
	left := endTime
	if deadline, ok := ctx.Deadline(); ok {
		left = max(left, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	errs := h.ledger.Record(ctx, hongbao.Batch{Shard: in.Shard, Epoch: in.Epoch, Grants: grants})
	for i, it := range list {
		reference := it.credit.Reference
		switch {
		case errs == nil || len(errs) == len(list) && errs[i] == nil:
			it.err = nil
			h.known.forgetBooked(reference)
			continue
		case len(errs) != len(list):
			it.err = hongbao.Errorf(hongbao.ClassBroken, "the ledger returned %d errors for %d grants: it is unknown which "+
				"grants it has", len(errs), len(list))
		default:
			it.err = fmt.Errorf("credit %s is booked, but not recorded in the ledger: %w", reference, errs[i])
		}
		if it.outcome = outcomeOpen; it.credit.Amount > 0 {
			h.known.setBooked(reference, it.grant)
		}
	}
}

// endTime is the minimum time that the ledger gets to store the results of a round.
const endTime = 5 * time.Second

// forget deletes the pending rows of items that are certainly not booked, so that any worker may send them. It returns
// the items that this call must send again.
func (h *Handler) forget(ctx context.Context, items []*item) (again []*item) {
	type begun struct {
		batch  int64
		listed time.Time
	}
	rows := map[begun][]*item{}
	for _, it := range items {
		if it.batch != 0 && (it.outcome == outcomeUnbooked || it.outcome == outcomeRejected) {
			rows[begun{it.batch, it.listed}] = append(rows[begun{it.batch, it.listed}], it)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	for of, list := range rows {
		grants := make([]hongbao.Grant, len(list))
		for i, it := range list {
			grants[i] = *it.grant
		}
		err := h.ledger.Forget(ctx, of.batch, of.listed, grants)
		for _, it := range list {
			switch {
			case err != nil:
				if of.listed.IsZero() {
					h.known.setUnsent(it.credit.Reference, of.batch)
				}
				it.err = fmt.Errorf("%w; and the credit is still pending: %w", err, it.err)
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
