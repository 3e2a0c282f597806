package ledger

import (
	"context"
	"errors"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// ErrFenced says that a fence has left an event out. Errors that wrap it are outages: the caller reads Redis again.
var ErrFenced = errors.New("the shard continues without this event")

// event identifies an event and the epoch in which Redis had it.
type event struct {
	shard      int
	seq, epoch int64
}

// fencedError returns the error for an event that the fence of a later epoch leaves out.
func (e event) fencedError(later int64) error {
	return hongbao.Outagef(hongbao.ClassTransient, "event %s of epoch %d: %w since epoch %d; read Redis again",
		stream.EventID(e.shard, e.seq), e.epoch, ErrFenced, later)
}

// event returns the event of the item's grant. If the batch has a later epoch, that epoch counts, because Redis had the
// grant when the batch was read.
func (it *item) event() event {
	return event{it.grant.Shard, it.grant.Seq, max(it.grant.Epoch, it.epoch)}
}

// shardView is what a transaction has read about the shards of its events: their epochs and fences.
type shardView []viewedShard

type viewedShard struct {
	shard           int
	oldest, highest int64 // the lowest epoch and the highest seq of the events
	epoch           int64 // the shard's epoch; 0 if the ledger does not have the shard
	fences          []FenceRow
}

// with returns the view extended by an event.
func (o shardView) with(e event) shardView {
	for i := range o {
		if s := &o[i]; s.shard == e.shard {
			s.oldest, s.highest = min(s.oldest, e.epoch), max(s.highest, e.seq)
			return o
		}
	}
	return append(o, viewedShard{shard: e.shard, oldest: e.epoch, highest: e.seq})
}

func shardViewOf(items []item) (o shardView) {
	for i := range items {
		o = o.with(items[i].event())
	}
	return o
}

// queries returns the queries for the shards' epochs, and for the fences that may leave out one of the events.
func (o shardView) queries() []db.Stmt {
	stmts := make([]db.Stmt, len(o))
	for i := range o {
		s := &o[i]
		stmts[i] = db.Stmt{SQL: `SELECT s.epoch, COALESCE(f.epoch, 0), COALESCE(f.floor, 0) FROM shard AS s
			LEFT JOIN fence AS f ON f.shard = s.shard AND f.epoch > $1 AND f.floor < $2 WHERE s.shard = $3`,
			Args: []any{s.oldest, s.highest, int64(s.shard)}, Row: func(row db.Scan) error {
				var f FenceRow
				err := row(&s.epoch, &f.Epoch, &f.Floor)
				s.fences = append(s.fences, f)
				return err
			}}
	}
	return stmts
}

// fence returns the epoch whose fence leaves an event out; 0 if none does.
func (o shardView) fence(e event) int64 {
	for i := range o {
		for _, f := range o[i].fences {
			if o[i].shard == e.shard && f.Epoch > e.epoch && f.Floor < e.seq {
				return f.Epoch
			}
		}
	}
	return 0
}

// unchanged returns the last statements of a transaction that relies on the view, one for each shard. Each locks the
// shard's row in share mode, so a later Fence waits for this transaction. If a Fence has already changed the epoch, the
// statement inserts a second row for the shard, and the primary key makes it fail with db.ErrAgain. The lock comes
// last, so a stalled worker does not block a Fence. LIMIT keeps the database from moving the comparison of epochs into
// the subquery: a subquery locks only the rows that it returns.
func (o shardView) unchanged(d *db.Dialect) (stmts []db.Stmt) {
	if d.Share == "" {
		return nil
	}
	for i := range o {
		stmts = append(stmts, db.Stmt{SQL: `INSERT INTO shard (shard, epoch, token) SELECT s.shard, s.epoch, s.token
			FROM (SELECT shard, epoch, token FROM shard WHERE shard = $1 LIMIT 1` + d.Share + `) AS s WHERE s.epoch <> $2`,
			Args: []any{int64(o[i].shard), o[i].epoch}})
	}
	return stmts
}

// fencedItems are the items of a transaction that a fence concerns, grouped by what the ledger knows of their grants.
type fencedItems struct {
	paid      []item // already paid, or pending if the caller counts pending rows
	aside     []item // already in quarantine
	fencedOff []item // unknown to the ledger; item.fence is set
}

// behindFences finds the items of older epochs above a fence's floor. Most batches have none, and then it runs no
// query. pending says whether a row in table pending counts as known.
func (l *Ledger) behindFences(ctx context.Context, t db.Txn, o shardView, items []item, pending bool) (f fencedItems,
	err error) {
	var behind []item
	for _, it := range items {
		if it.fence = o.fence(it.event()); it.fence > 0 {
			behind = append(behind, it)
		}
	}
	if len(behind) == 0 {
		return f, nil
	}
	has, err := l.recall(ctx, t, behind)
	for _, it := range behind {
		stored, settled := has.paid[keyOf(it.grant)]
		begun, asked := has.pending[keyOf(it.grant)]
		switch {
		case settled && difference(it.grant, &stored.Grant) == "",
			pending && asked && difference(it.grant, &begun.Grant) == "":
			f.paid = append(f.paid, it)
		case has.aside.of(it.grant) != nil:
			f.aside = append(f.aside, it)
		default:
			f.fencedOff = append(f.fencedOff, it)
		}
	}
	return f, err
}

// without returns the items that are not among those.
func without(items, those []item) []item {
	if len(those) == 0 {
		return items
	}
	gone := make(map[int]bool, len(those))
	for _, it := range those {
		gone[it.index] = true
	}
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool { return gone[it.index] })
}
