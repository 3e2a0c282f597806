package ledger

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// The reasons. See docs/ledger.md for what to do about each.
const (
	DifferentUser    model.QuarantineReason = "exists_with_different_user"
	DifferentAmount  model.QuarantineReason = "exists_with_different_amount"
	DifferentShard   model.QuarantineReason = "exists_with_different_shard"
	DifferentSeq     model.QuarantineReason = "exists_with_different_seq"
	AmountNotPlanned model.QuarantineReason = "amount_not_planned"
	PacketNotPlanned model.QuarantineReason = "packet_not_planned"
	NoCampaign       model.QuarantineReason = "unknown_campaign"
	OverFunded       model.QuarantineReason = "over_funded"
	AfterRefund      model.QuarantineReason = "after_refund"
)

// difference returns the first field in which a grant differs from the ledger's version, or "". It ignores the epoch,
// because a grant that was restored to Redis may be redelivered with a higher epoch.
func difference(g, has *hongbao.Grant) model.QuarantineReason {
	switch {
	case g.User != has.User:
		return DifferentUser
	case g.Amount != has.Amount:
		return DifferentAmount
	case g.Shard != has.Shard:
		return DifferentShard
	case g.Seq != has.Seq:
		return DifferentSeq
	}
	return ""
}

// quarantineRows is how many grants one transaction writes to quarantine.
const quarantineRows = 5_000

// addToQuarantine writes the items to quarantine, together with the ledger's grants of their packets. waiting are the
// grants that wait for a decision; new ones have an ID. It does not write items that agree with the ledger by now, nor
// those that a fence leaves out. pending says that the items' pending rows are deleted in the same transactions.
func (l *Ledger) addToQuarantine(ctx context.Context, items []item, pending bool) (waiting []model.Quarantined,
	fencedOff []item, err error) {
	// Every worker locks in the same order.
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.grant.Campaign, b.grant.Campaign), cmp.Compare(a.grant.Packet, b.grant.Packet),
			cmp.Compare(a.grant.Shard, b.grant.Shard), cmp.Compare(a.grant.Seq, b.grant.Seq),
			cmp.Compare(a.grant.User, b.grant.User), cmp.Compare(a.grant.Amount, b.grant.Amount))
	})
	for part := range slices.Chunk(items, quarantineRows) {
		var more []model.Quarantined
		var behind fencedItems
		err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) (stmts []db.Stmt, err error) {
			seen := shardViewOf(part)
			if err = t.Run(ctx, seen.queries()...); err == nil {
				behind, err = l.behindFences(ctx, t, seen, part, pending)
			}
			left := without(part, behind.fencedOff)
			if err == nil {
				more, err = l.writeQuarantine(ctx, t, left)
			}
			if err == nil && pending {
				stmts = l.deletePending(left, 0, time.Time{})
			}
			return append(stmts, seen.unchanged(l.tables.Dialect)...), err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("write %d grants to quarantine: %w", len(items), err)
		}
		waiting, fencedOff = append(waiting, more...), append(fencedOff, behind.fencedOff...)
	}
	return waiting, fencedOff, nil
}

// writeQuarantine writes the items with three statements, however many there are.
func (l *Ledger) writeQuarantine(ctx context.Context, t db.Txn, items []item) (waiting []model.Quarantined, err error) {
	has, err := l.readGrants(ctx, t, items)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	list := make([]model.Quarantined, 0, len(items))
	for _, it := range items {
		q := model.Quarantined{Reason: it.reason, Grant: *it.grant, Created: now}
		if g, ok := has[keyOf(it.grant)]; ok {
			if q.Reason = difference(it.grant, &g.Grant); q.Reason == "" {
				continue
			}
			q.Has = &g.Grant
		}
		list = append(list, q)
	}
	if len(list) == 0 {
		return nil, nil
	}
	rows, facts := packQuarantine(list)
	batch := rand.Int64()
	insert := db.Stmt{SQL: l.tables.Dialect.InsertQuarantine, Args: []any{rows, now.UnixMilli(), batch}}
	if err := t.Run(ctx, insert); err != nil {
		return nil, err
	}
	given := make(map[int64]bool, len(list)) // a grant that is twice in a batch is new only once
	err = t.Query(ctx, l.tables.Dialect.FindQuarantined, []any{facts}, func(s db.Scan) error {
		var n, id, resolved, by int64
		if err := s(&n, &id, &resolved, &by); err != nil || resolved != 0 {
			return err
		}
		if by == batch && !given[id] {
			given[id] = true
			list[n].ID = id
		}
		waiting = append(waiting, list[n])
		return nil
	})
	return waiting, err
}

// packQuarantine returns the columns of the rows without created_at and batch. facts are the columns that identify each
// row, and the row's index in the list.
func packQuarantine(list []model.Quarantined) (rows, facts db.Table) {
	n := len(list)
	grants, had := make([]item, n), make([]item, n)
	reasons, entries := make([]string, n), make([]string, n)
	has, places := make([]int64, n), make([]int64, n)
	for i := range list {
		q := &list[i]
		grants[i].grant, had[i].grant = &q.Grant, grantBefore(q)
		reasons[i], entries[i], places[i] = string(q.Reason), q.Grant.EntryID, int64(i)
		if q.Has != nil {
			has[i] = 1
		}
	}
	g := columnsOf(grants)
	rows = slices.Concat(db.Table{reasons}, g, db.Table{entries, has}, columnsOf(had)[2:]) // all but campaign and packet
	campaigns, packets, users, amounts, shards, seqs := g[0], g[1], g[2], g[3], g[4], g[5]
	return rows, db.Table{campaigns, packets, shards, seqs, users, amounts, places}
}

// grantBefore returns the ledger's grant of the packet, or a grant of zeros if there was none.
func grantBefore(q *model.Quarantined) *hongbao.Grant {
	if q.Has == nil {
		return &hongbao.Grant{Time: time.UnixMilli(0)}
	}
	return q.Has
}

const quarantineColumns = `id, reason, ` + tables.GrantColumns + `, entry_id,
	has, has_user_id, has_amount, has_shard, has_seq, has_epoch, has_request_id, has_granted_at, created_at,
	resolved_at, resolved_by, resolution,
	COALESCE((SELECT currency FROM campaign AS c WHERE c.id = quarantine.campaign), '')`

func scanQuarantined(s db.Scan) (model.Quarantined, error) {
	var q model.Quarantined
	var reason string
	var has hongbao.Grant
	var shard, at, flag, hasShard, hasAt, created, resolved int64
	g := &q.Grant
	err := s(&q.ID, &reason, &g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at,
		&g.EntryID, &flag, &has.User, &has.Amount, &hasShard, &has.Seq, &has.Epoch, &has.RequestID, &hasAt, &created,
		&resolved, &q.ResolvedBy, &q.Resolution, &g.Currency)
	q.Reason, g.Shard, g.Time = model.QuarantineReason(reason), int(shard), time.UnixMilli(at).UTC()
	q.Created = time.UnixMilli(created).UTC()
	if resolved != 0 {
		q.Resolved = time.UnixMilli(resolved).UTC()
	}
	if flag == 1 {
		has.Campaign, has.Packet, has.Shard, has.Time = g.Campaign, g.Packet, int(hasShard), time.UnixMilli(hasAt).UTC()
		q.Has = &has
	}
	return q, err
}

// Quarantine lists up to limit grants that wait for a decision, with ids above after, in the order of their ids.
func (l *Ledger) Quarantine(ctx context.Context, after int64, limit int) ([]model.Quarantined, error) {
	return l.quarantine(ctx, `resolved_at = 0 AND id > $1`, after, limit)
}

func (l *Ledger) quarantine(ctx context.Context, where string, after int64, limit int) ([]model.Quarantined, error) {
	return tables.Ask("list the quarantine",
		`SELECT `+quarantineColumns+` FROM quarantine WHERE `+where+` ORDER BY id LIMIT $2`,
		[]any{after, int64(limit)}, scanQuarantined).All(ctx, l.tables)
}
