package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// grantsOwn is the epoch of a batch whose grants were not read from Redis. It is the lowest epoch, so each grant keeps
// its own.
const grantsOwn = 1

// sweepAtOnce is the number of credits that one page from the ledger has.
const sweepAtOnce = 1_000

// Sweep queries the remote for the credits in doubt. Only Sweep resolves a credit whose event is not delivered any
// more, because its dead letter was dropped or Redis has lost it. Sweep records booked credits, and deletes the pending
// rows of credits that will never be booked. It requests no credit, so it may run concurrently with workers. It returns
// the number of credits that are still in doubt.
func (h *Handler) Sweep(ctx context.Context) (left int, err error) {
	if !h.cfg.Queryable {
		return 0, nil
	}
	for after := (hongbao.Grant{}); ; {
		list, err := h.ledger.Pending(ctx, h.cfg.ClaimTime, after, sweepAtOnce)
		if err != nil {
			return left, err
		}
		doubts, err := h.sweep(ctx, list)
		if left += doubts; err != nil || len(list) < sweepAtOnce {
			return left, err
		}
		after = list[len(list)-1].Grant
	}
}

func (h *Handler) sweep(ctx context.Context, list []payment.Pending) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ClaimTime)
	defer cancel()
	grants, errs := make([]hongbao.Grant, len(list)), make([]error, len(list))
	for i := range list {
		grants[i] = list[i].Grant
	}
	items, _ := h.sort(ctx, grants, errs)
	h.each(len(items), 1, func(i, _ int) {
		it := items[i]
		h.asPending(it, &list[it.index])
		h.lookUp(ctx, it)
	})
	slices.SortStableFunc(items, func(a, b *item) int { return cmp.Compare(a.grant.Shard, b.grant.Shard) })
	h.record(ctx, grantsOwn, items)
	h.forget(ctx, items)
	for _, it := range items {
		if it.outcome == outcomeOpen {
			left++
		}
		if hongbao.IsOutage(it.err) {
			err = fmt.Errorf("resolve credits in doubt: %w", it.err)
		}
	}
	return left + len(list) - len(items), err
}

// RecordBooked records a credit that the remote has booked and the ledger lacks. It queries the remote and requests
// nothing. A person has dropped the grant's dead letter, so no worker does this.
func (h *Handler) RecordBooked(ctx context.Context, g hongbao.Grant) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ClaimTime)
	defer cancel()
	errs := make([]error, 1)
	items, free := h.sort(ctx, []hongbao.Grant{g}, errs)
	if len(free) > 0 {
		return hongbao.Errorf(hongbao.ClassPermanent, "packet %d of campaign %s has no value, so no credit of it is booked",
			g.Packet, g.Campaign)
	}
	if len(items) == 0 {
		return errs[0]
	}
	it := items[0]
	fresh, open := h.begin(ctx, grantsOwn, items)
	switch {
	case len(fresh) > 0: // no request is under way, so the answer is final
		h.find(ctx, it, "nothing was recorded")
	case len(open) > 0:
		if h.lookUp(ctx, it); it.resend {
			h.conflict(it, errors.New("nothing was recorded"))
			it.outcome = outcomeUnbooked
		}
	case it.err == nil && it.outcome != outcomeBooked:
		return hongbao.Errorf(hongbao.ClassConflict, "record credit %s: the grant is in quarantine, where a person decides "+
			"about it; ask the owners of the remote to take the credit back", it.credit.Reference)
	}
	h.record(ctx, grantsOwn, items)
	h.forget(ctx, items)
	return it.err
}

// asPending sets the fields of an item from its pending row.
func (h *Handler) asPending(it *item, row *payment.Pending) {
	now := h.now()
	it.first, it.asked, it.batch, it.outcome = now.Add(-row.Age), now.Add(-row.Idle), row.Batch, outcomeOpen
	it.listed = row.Asked
}

// AskFrom returns the time after which a person's inquiry about a pending credit counts for Unbook.
func (h *Handler) AskFrom(row *payment.Pending) time.Time {
	it := &item{grant: &row.Grant}
	h.asPending(it, row)
	return h.lastSent(it).UTC()
}

// Unbook deletes the pending row of a credit that is not booked, as a person has verified (Config.Verified). It does
// not send the credit, because the event is not delivered any more.
func (h *Handler) Unbook(ctx context.Context, row payment.Pending) error {
	it := &item{grant: &row.Grant}
	if h.asPending(it, &row); !h.verifiedUnbooked(it) {
		return hongbao.Errorf(hongbao.ClassPermanent, "packet %d of campaign %s may have been asked for until %s: check "+
			"the remote again after that time",
			row.Grant.Packet, row.Grant.Campaign, h.lastSent(it).UTC().Format(time.RFC3339Nano))
	}
	err := h.ledger.Forget(ctx, row.Batch, row.Asked, []hongbao.Grant{row.Grant})
	if err != nil {
		return err
	}
	before := row.Grant
	before.Packet--
	left, err := h.ledger.Pending(ctx, 0, before, 1)
	if err == nil && len(left) > 0 && left[0].Grant.Campaign == row.Grant.Campaign &&
		left[0].Grant.Packet == row.Grant.Packet {
		err = hongbao.Errorf(hongbao.ClassTransient, "a worker has taken packet %d of campaign %s over meanwhile: run this "+
			"again", row.Grant.Packet, row.Grant.Campaign)
	}
	return err
}
