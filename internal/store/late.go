package store

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// checkLate checks the grants that this process reported to users in earlier epochs, if the shard was opened without
// this process's evidence. That happens if the process was stopped or disconnected. If Redis lacks a grant and the
// grant's packet is withheld, checkLate grants it again under a new seq. The process remembers the grant under that seq,
// in case Redis loses it once more. lost are the grants for which that failed, each with the reason.
func (k *Shard) checkLate(ctx context.Context) (lost []LateGrant, err error) {
	epoch, grants, err := k.late()
	if err != nil || len(grants) == 0 {
		return nil, err
	}
	users := map[string][]string{}
	for i := range grants {
		users[grants[i].Campaign] = append(users[grants[i].Campaign], grants[i].User)
	}
	has := map[string]map[string][]hongbao.Receipt{}
	for id, list := range users {
		if has[id], err = k.Place(id).ReceiptsOf(ctx, list); err != nil && !errors.Is(err, redis.Nil) { // purged
			return nil, err
		}
	}
	for i := range grants {
		g := &grants[i]
		if has[g.Campaign] == nil {
			continue
		}
		receipts := has[g.Campaign][g.User]
		at := slices.IndexFunc(receipts, func(r hongbao.Receipt) bool {
			return r.Packet == g.Packet && r.RequestID == g.RequestID
		})
		if at >= 0 { // a restore put it back, or an earlier call whose reply was lost
			g.Seq, g.Epoch, g.Time = receipts[at].Seq, epoch, receipts[at].Time
			k.state.witness.rememberAgain(k.store, g)
			continue
		}
		why, err := k.At(epoch).GrantWithheld(ctx, g, Room{Elsewhere: UnknownElsewhere})
		if err != nil {
			return nil, err
		}
		if why == "" {
			k.state.witness.rememberAgain(k.store, g)
		}
		if why != "" && why != RefusedHas && why != StateFrozen { // frozen: an operator has accepted the loss
			lost = append(lost, LateGrant{*g, why})
		}
	}
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkedLate = max(w.checkedLate, epoch)
	return lost, nil
}

// LateGrant is a grant that was reported to a user and that Redis has lost. Why says why it could not be granted
// again.
type LateGrant struct {
	hongbao.Grant

	Why Refusal
}

// late returns the grants that this process reported to users in earlier epochs. It returns none if a restore attempt
// has received them, or if checkLate has already checked them.
func (k *Shard) late() (epoch int64, grants []hongbao.Grant, err error) {
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	epoch = w.registration.epoch
	if epoch == 0 || epoch <= w.sent || epoch <= w.checkedLate {
		return epoch, nil, nil
	}
	for i := range w.reported {
		if w.reported[i].epoch >= epoch {
			continue
		}
		e, err := stream.ParseEntry(k.Index(), "0-0", []string{grantVersion, w.reported[i].entry})
		if err != nil {
			return epoch, nil, err
		}
		grants = append(grants, e.Grants...)
	}
	return epoch, grants, nil
}

// lateReported raises late to the event with the highest seq that this process had reported to a user and that an
// opening has lost, unless a restore attempt has received this process's evidence.
func (st *state) lateReported(skipped *Skips, late *lateEvent) {
	w := &st.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.least.Load() >= skipped.epoch {
		return
	}
	for i := range w.reported {
		t := &w.reported[i]
		r, lost := skipped.lost(t.epoch, stream.SeqRange{First: t.first, Last: t.last})
		if lost && !r.accepted {
			seq := t.last
			if t.first <= r.Last {
				seq = min(seq, r.Last)
			}
			late.raise(t.epoch, seq, &r)
		}
	}
}
