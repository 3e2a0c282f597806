package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
)

// record hands the ledger what the remote has credited. What it does not take stays open: the claim stays, and the next
// attempt finds the credit by a note, or as the remote is able to tell, and records it then.
func (h *Handler) record(ctx context.Context, items []*item) {
	var list []*item
	var grants []hongbao.Grant
	for _, it := range items {
		if it.fate == fateDone {
			list, grants = append(list, it), append(grants, *it.grant)
		}
	}
	if len(list) == 0 {
		return
	}
	// What is known stays true when the lease is lost: it is recorded all the same, and for one grant never twice.
	left := endTime
	if deadline, ok := ctx.Deadline(); ok {
		left = max(left, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	errs := h.ledger.handle(ctx, grants)
	var lost []*item
	for i, it := range list {
		if errs == nil || errs[i] == nil {
			continue
		}
		it.fate, it.err = fateOpen, fmt.Errorf("credit %s is booked, but not recorded in the ledger: %w", it.credit.Reference, errs[i])
		if it.credit.Amount > 0 {
			lost = append(lost, it)
		}
	}
	if len(lost) == 0 {
		return
	}
	// The ledger may have taken all of the time.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := h.claims.Note(ctx, lost[0].shard, eventsOf(lost)); err != nil {
		for _, it := range lost {
			it.err = fmt.Errorf("%w; that it is booked could not be noted: %s", it.err, err.Error())
		}
	}
}

// noted marks the items of one shard that are known to be credited, and gives those that are in the dark.
func (h *Handler) noted(ctx context.Context, items []*item) (dark []*item, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	noted, err := h.claims.Noted(ctx, items[0].shard, eventsOf(items))
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		if holds(noted, it.seq) {
			it.fate, it.err = fateDone, nil
		} else {
			dark = append(dark, it)
		}
	}
	return dark, nil
}

// unrecorded gives the items that are still to be credited, or all of them with an error: the others are done, as the ledger
// holds them, or contradict what it holds. A replay is to meet the remote for what is recorded, too.
func (h *Handler) unrecorded(ctx context.Context, items []*item) (rest []*item, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	grants := make([]hongbao.Grant, len(items))
	for i, it := range items {
		grants[i] = *it.grant
	}
	rows, err := h.ledger.ledger.Recorded(ctx, grants)
	if err != nil {
		return items, wrap(err, "reading what the ledger holds of %d grants, of which nothing was sent now", len(items))
	}
	held := make(map[string]*hongbao.Grant, len(rows))
	for i := range rows {
		held[Key(h.cfg.Deployment, rows[i].Campaign, rows[i].Packet)] = &rows[i]
	}
	for _, it := range items {
		g, row := it.grant, held[it.credit.Reference]
		switch {
		case row == nil:
			rest = append(rest, it)
		case row.User != g.User || row.Amount != g.Amount || row.Shard != g.Shard || row.Seq != g.Seq:
			h.count.conflicts.Add(1)
			it.err = hongbao.Errorf(hongbao.Conflict, "%w: the ledger holds packet %d of campaign %s as event %s, amount %d; it came as event %s, amount %d, "+
				"or for another user: nothing was sent, a person decides", ErrContradiction, g.Packet, g.Campaign, row.EventID(), row.Amount, g.EventID(), g.Amount)
		case h.cfg.Again:
			rest = append(rest, it)
		default:
			it.fate, it.err = fateDone, nil
		}
	}
	return rest, nil
}

// recorder hands grants to the ledger. Those that come one by one, because each has a claim of its own, go together: whoever
// has the turn takes along all that wait.
type recorder struct {
	ledger Ledger
	mu     sync.Mutex
	queue  []*recording
	turn   sync.Mutex
}

// recording is one grant that waits for its turn.
type recording struct {
	grant hongbao.Grant
	over  bool
	err   error
}

// errNotTold is what stays of a call to the ledger that panicked.
var errNotTold = hongbao.Outagef(hongbao.Unknown, "the ledger broke down before it told what it holds")

func (r *recorder) handle(ctx context.Context, grants []hongbao.Grant) []error {
	if len(grants) > 1 {
		return r.pass(ctx, grants)
	}
	mine := &recording{grant: grants[0], err: errNotTold}
	r.mu.Lock()
	r.queue = append(r.queue, mine)
	r.mu.Unlock()
	r.turn.Lock()
	defer r.turn.Unlock()
	if !mine.over {
		r.flush(ctx)
	}
	return []error{mine.err}
}

// flush hands on all that wait; the turn is the caller's.
func (r *recorder) flush(ctx context.Context) {
	r.mu.Lock()
	list := r.queue
	r.queue = nil
	r.mu.Unlock()
	grants := make([]hongbao.Grant, len(list))
	for i, w := range list {
		grants[i], w.over = w.grant, true
	}
	errs := r.pass(ctx, grants)
	for i, w := range list {
		if w.err = nil; errs != nil {
			w.err = errs[i]
		}
	}
}

// pass never gives fewer errors than grants, but for nil.
func (r *recorder) pass(ctx context.Context, grants []hongbao.Grant) []error {
	errs := r.ledger.Handle(ctx, grants)
	if errs == nil || len(errs) == len(grants) {
		return errs
	}
	broken := hongbao.Errorf(hongbao.Broken, "the ledger gave %d errors for %d grants: it can't be told what it holds", len(errs), len(grants))
	errs = make([]error, len(grants))
	for i := range errs {
		errs[i] = broken
	}
	return errs
}
