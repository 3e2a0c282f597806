package settlement

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Reason says why a grant is in quarantine.
type Reason string

// The reasons. See docs/ledger.md for what to do about each.
const (
	DifferentUser    Reason = "exists_with_different_user"
	DifferentAmount  Reason = "exists_with_different_amount"
	DifferentShard   Reason = "exists_with_different_shard"
	DifferentSeq     Reason = "exists_with_different_seq"
	AmountNotPlanned Reason = "amount_not_planned"
	PacketNotPlanned Reason = "packet_not_planned"
	NoCampaign       Reason = "unknown_campaign"
	OverFunded       Reason = "over_funded"
	AfterRefund      Reason = "after_refund"
)

// difference says in what a grant differs from the ledger's, or "". The epoch is no fact of it: a grant that was put
// back into Redis may come again under a higher one.
func difference(g, has *hongbao.Grant) Reason {
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

// Quarantined is a grant that contradicts the ledger, the plan or the funding. It was not paid.
type Quarantined struct {
	ID     int64
	Reason Reason
	Grant  hongbao.Grant
	// Has is the ledger's own version of the packet when the grant came; nil if it had none.
	Has     *hongbao.Grant
	Created time.Time
	// Resolved is zero while nobody has decided.
	Resolved   time.Time
	ResolvedBy string
	Resolution string
}

// setAside writes the items to quarantine in one transaction, next to what the ledger has of their packets. It gives
// those that wait for a decision, with an ID if they were not there before. An item that agrees with the ledger by now
// is done, and not written.
func (l *Ledger) setAside(ctx context.Context, items []item) ([]Quarantined, error) {
	var added []Quarantined
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		added = nil
		has, err := l.readGrants(ctx, t, items)
		if err != nil {
			return nil, err
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		for _, it := range items {
			q := Quarantined{Reason: it.reason, Grant: *it.grant, Created: now}
			if g, ok := has[keyOf(it.grant)]; ok {
				if q.Reason = difference(it.grant, &g.Grant); q.Reason == "" {
					continue
				}
				q.Has = &g.Grant
			}
			isNew, err := q.insert(ctx, t)
			if err != nil {
				return nil, err
			}
			waits := isNew
			if !isNew {
				if waits, err = q.undecided(ctx, t); err != nil {
					return nil, err
				}
			}
			if waits {
				added = append(added, q)
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("write %d grants to quarantine: %w", len(items), err)
	}
	return added, nil
}

const quarantineColumns = `reason, campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, entry_id,
	has, has_user_id, has_amount, has_shard, has_seq, has_epoch, has_request_id, has_granted_at, created_at`

// insert writes q and sets its ID, or tells that the same grant is there already.
func (q *Quarantined) insert(ctx context.Context, t txn) (isNew bool, err error) {
	g, has, flag := &q.Grant, &hongbao.Grant{Time: time.UnixMilli(0)}, int64(0)
	if q.Has != nil {
		has, flag = q.Has, 1
	}
	var changed int64
	err = t.run(ctx, stmt{sql: `INSERT INTO quarantine (` + quarantineColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT (campaign, packet, shard, seq, user_id, amount) DO NOTHING`, args: []any{
		string(q.Reason), g.Campaign, g.Packet, g.User, int64(g.Amount), int64(g.Shard), g.Seq, g.Epoch, g.RequestID,
		g.Time.UnixMilli(), g.EntryID, flag, has.User, int64(has.Amount), int64(has.Shard), has.Seq, has.Epoch,
		has.RequestID, has.Time.UnixMilli(), q.Created.UnixMilli(),
	}, changed: &changed})
	if err != nil || changed == 0 {
		return false, err
	}
	// Not every database gives the id back with the insert.
	return true, t.query(ctx, `SELECT id FROM quarantine WHERE campaign = $1 AND packet = $2 AND shard = $3 AND seq = $4
		AND user_id = $5 AND amount = $6`, []any{g.Campaign, g.Packet, int64(g.Shard), g.Seq, g.User, int64(g.Amount)},
		func(s scan) error { return s(&q.ID) })
}

// undecided tells whether a grant that is in quarantine already waits for a decision.
func (q *Quarantined) undecided(ctx context.Context, t txn) (waits bool, err error) {
	g := &q.Grant
	err = t.query(ctx, `SELECT resolved_at FROM quarantine
		WHERE campaign = $1 AND packet = $2 AND shard = $3 AND seq = $4 AND user_id = $5 AND amount = $6`,
		[]any{g.Campaign, g.Packet, int64(g.Shard), g.Seq, g.User, int64(g.Amount)}, func(s scan) error {
			var at int64
			err := s(&at)
			waits = at == 0
			return err
		})
	return waits, err
}

func scanQuarantined(s scan) (Quarantined, error) {
	var q Quarantined
	var reason string
	var has hongbao.Grant
	var shard, at, flag, hasShard, hasAt, created, resolved int64
	g := &q.Grant
	err := s(&q.ID, &reason, &g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at,
		&g.EntryID, &flag, &has.User, &has.Amount, &hasShard, &has.Seq, &has.Epoch, &has.RequestID, &hasAt, &created,
		&resolved, &q.ResolvedBy, &q.Resolution)
	q.Reason, g.Shard, g.Time = Reason(reason), int(shard), time.UnixMilli(at).UTC()
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

// Quarantine lists up to limit grants that wait for a decision, in the order in which they came, with ids above after;
// 0 begins.
func (l *Ledger) Quarantine(ctx context.Context, after int64, limit int) ([]Quarantined, error) {
	return l.quarantine(ctx, `resolved_at = 0 AND id > $1`, after, limit)
}

func (l *Ledger) quarantine(ctx context.Context, where string, after int64, limit int) ([]Quarantined, error) {
	var list []Quarantined
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = list[:0]
		return t.query(ctx, `SELECT id, `+quarantineColumns+`, resolved_at, resolved_by, resolution FROM quarantine
			WHERE `+where+` ORDER BY id LIMIT $2`, []any{after, int64(limit)}, func(s scan) error {
			q, err := scanQuarantined(s)
			list = append(list, q)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list the quarantine: %w", err)
	}
	return list, nil
}
