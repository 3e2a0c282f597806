package remote

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
)

// maxRounds bounds how often what stands in the way is cleared; each round but the last ends some claim.
const maxRounds = 8

// settle claims the items, all of one shard, and credits them; or first ends the claims that stand in the way.
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
	failAll(items, hongbao.Errorf(hongbao.Transient, "other workers' claims cover the grants again and again; they are tried again"))
}

// round gives what is left for another one.
func (h *Handler) round(ctx context.Context, items []*item) []*item {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ClaimTime)
	defer cancel()
	first := h.first(items)
	claim := hongbao.Claim{ID: newClaimID(), Events: eventsOf(items), Payload: note{first, h.cfg.Deployment}.String()}
	a, err := h.claims.Claim(ctx, items[0].shard, claim.ID, claim.Events, claim.Payload)
	if err != nil {
		failAll(items, wrap(err, "claiming %d grants for the remote", len(items)))
		return nil
	}
	claim.Fence = a.Fence
	granted := a.Granted()
	if len(a.Open) == 1 && a.Open[0].ID == claim.ID { // granted, but the answer was lost and the client asked again: nothing was sent
		granted, claim.Fence = ctx.Err() == nil, a.Open[0].Fence
	}
	if granted {
		h.credit(ctx, items, claim.ID, first)
		h.end(ctx, claim, items, nil)
		return nil
	}
	return h.clear(ctx, items, &a)
}

// credit brings the items of a granted claim to the remote and then to the ledger. What the ledger holds was credited before,
// whatever Redis says: it may have lost that.
func (h *Handler) credit(ctx context.Context, items []*item, claim string, first time.Time) {
	for _, it := range items {
		it.fate = fateFresh
	}
	items, err := h.unrecorded(ctx, items)
	for _, it := range items {
		if it.err = err; err == nil {
			it.fate = fateOpen
		}
	}
	if err != nil {
		return
	}
	switch {
	case h.cfg.Again:
		h.each(len(items), 1, func(i, _ int) { h.repeat(ctx, items[i]) })
	case h.cfg.Told == Done:
		for _, it := range items {
			it.fate = fateDone
		}
	case h.cfg.idempotent():
		h.push(ctx, items, first)
	default:
		h.push(ctx, slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return !h.intends(ctx, it, claim) }), first)
		h.forget(ctx, items)
	}
	h.record(ctx, items)
}

// clear deals with what stood in the way of a claim, and gives the items that are to be claimed anew.
func (h *Handler) clear(ctx context.Context, items []*item, a *hongbao.ClaimAnswer) []*item {
	items = doneIn(items, a.Done)
	for i := range a.Open {
		items = h.takeOver(ctx, items, &a.Open[i])
	}
	if a.Held == 0 || len(items) == 0 {
		return items
	}
	if len(items) == 1 {
		failAll(items, hongbao.Heldf("a live worker holds the claim on event %d-%d", items[0].shard, items[0].seq))
		return nil
	}
	half := len(items) / 2 // most of them are free: find those that are
	return append(h.round(ctx, items[:half]), h.round(ctx, items[half:])...)
}

// doneIn marks the items that are done, and gives the others.
func doneIn(items []*item, done []hongbao.SeqRange) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(it *item) bool {
		if holds(done, it.seq) {
			it.fate, it.err = fateDone, nil
			return true
		}
		return false
	})
}

// takeOver resolves the items that an open claim covers. The claim keeps only what is left in the dark; its events that are not
// among the items come to some worker, or with their dead letters, by themselves.
func (h *Handler) takeOver(ctx context.Context, items []*item, open *hongbao.Claim) []*item {
	var mine, rest []*item
	for _, it := range items {
		if holds(open.Events, it.seq) {
			mine = append(mine, it)
		} else {
			rest = append(rest, it)
		}
	}
	if len(mine) == 0 {
		return items
	}
	n, err := h.readNote(open)
	if err != nil {
		failAll(mine, err)
		return rest
	}
	// Asking for all of its events tells which of them are done.
	shard, probe := mine[0].shard, hongbao.Claim{ID: newClaimID(), Events: open.Events, Payload: open.Payload}
	a, err := h.claims.Claim(ctx, shard, probe.ID, probe.Events, probe.Payload)
	if err != nil {
		failAll(mine, wrap(err, "claiming what a claim covers"))
		return rest
	}
	if a.Granted() { // somebody ended it in between
		probe.Fence = a.Fence
		h.finish(func() error { return h.claims.Release(context.WithoutCancel(ctx), shard, probe) })
		return items
	}
	at := slices.IndexFunc(a.Open, func(c hongbao.Claim) bool { return c.ID == open.ID })
	left := count(open.Events) - count(a.Done)
	mine = doneIn(mine, a.Done)
	if at < 0 {
		return append(rest, mine...)
	}
	if left == 0 { // others have marked all of it
		h.finish(func() error { return h.claims.Release(context.WithoutCancel(ctx), shard, a.Open[at]) })
		return rest
	}
	dark, err := h.noted(ctx, mine)
	if err != nil {
		failAll(mine, wrap(err, "reading which credits were noted"))
		return rest
	}
	if dark, err = h.unrecorded(ctx, dark); err != nil {
		failAll(mine, err)
		return rest
	}
	h.each(len(dark), 1, func(i, _ int) { h.resolve(ctx, dark[i], n.first) })
	h.record(ctx, mine)
	if h.end(ctx, a.Open[at], mine, a.Done) {
		for _, it := range mine {
			if it.fate == fateFresh {
				rest = append(rest, it)
			}
		}
	}
	return rest
}

// end ends the claim, or leaves it with what is in the dark still: of its items those that are done get their bits, and those that
// were certainly not booked are free again. done are events of it that were done before. It tells whether that worked.
func (h *Handler) end(ctx context.Context, claim hongbao.Claim, items []*item, done []hongbao.SeqRange) bool {
	out := make(map[int64]bool, len(items))
	for _, r := range done {
		for seq := r.First; seq <= r.Last; seq++ {
			out[seq] = true
		}
	}
	var credited []*item
	for _, it := range items {
		if out[it.seq] = it.fate != fateOpen; it.fate == fateDone {
			credited = append(credited, it)
		}
	}
	if len(items) == 0 {
		return false
	}
	left := without(claim.Events, out)
	if count(left) == count(claim.Events) {
		return false
	}
	// What is known stays true when the lease is lost, and the fence keeps us from ending another worker's claim.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	shard := items[0].shard
	claim.Events = eventsOf(credited)
	return h.finish(func() error {
		switch {
		case len(left) > 0:
			return h.claims.Narrow(ctx, shard, claim, left)
		case len(credited) == 0:
			return h.claims.Release(ctx, shard, claim)
		}
		return h.claims.Complete(ctx, shard, claim)
	})
}

const endTime = 5 * time.Second

// finish tries to end a claim, a few times. A claim that stays is resolved by whoever meets it.
func (h *Handler) finish(do func() error) bool {
	err := backoff.Retry(func() error {
		err := do()
		if errors.Is(err, hongbao.ErrFenced) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithMaxRetries(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond)), 3))
	return err == nil
}

func eventsOf(items []*item) []hongbao.SeqRange {
	seqs := make([]int64, len(items))
	for i, it := range items {
		seqs[i] = it.seq
	}
	return runs(seqs)
}

// without gives the events that are not out.
func without(events []hongbao.SeqRange, out map[int64]bool) []hongbao.SeqRange {
	var seqs []int64
	for _, r := range events {
		for seq := r.First; seq <= r.Last; seq++ {
			if !out[seq] {
				seqs = append(seqs, seq)
			}
		}
	}
	return runs(seqs)
}

func count(ranges []hongbao.SeqRange) int64 {
	var n int64
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}

func failAll(items []*item, err error) {
	for _, it := range items {
		it.err = err
	}
}
