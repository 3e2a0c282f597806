package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// decidedQuery returns a row if a campaign has a grant in quarantine with resolved_at > $2.
const decidedQuery = `SELECT 1 FROM quarantine WHERE campaign = $1 AND resolved_at > $2 LIMIT 1`

// inQuarantine returns the items of campaigns that have any grant in quarantine, or any decided one if decided is set.
// items must be sorted by campaign. Few campaigns have such grants, so most batches need only one query per campaign.
func inQuarantine(ctx context.Context, t txn, items []item, decided bool) (suspects []item, err error) {
	above := int64(-1)
	if decided {
		above = 0
	}
	for first := 0; first < len(items) && err == nil; {
		id, last := items[first].grant.Campaign, first
		for last < len(items) && items[last].grant.Campaign == id {
			last++
		}
		err = t.query(ctx, decidedQuery, []any{id, above},
			func(s scan) error {
				suspects = append(suspects, items[first:last]...)
				return s(new(int64))
			})
		first = last
	}
	return suspects, err
}

// anyDecided returns queries that set decided if an operator has decided about any grant of the items' campaigns. items
// must be sorted by campaign.
func anyDecided(items []item, decided *bool) (queries []stmt) {
	for i := range items {
		if id := items[i].grant.Campaign; i == 0 || id != items[i-1].grant.Campaign {
			queries = append(queries, stmt{
				sql: decidedQuery, args: []any{id, int64(0)},
				row: func(s scan) error {
					*decided = true
					return s(new(int64))
				},
			})
		}
	}
	return queries
}

// undecided returns the items about which no operator has decided. The others must not be settled: they are void, or
// paid from the reserve. items must be sorted by campaign.
func (l *Ledger) undecided(ctx context.Context, t txn, items []item) (left []item, err error) {
	suspects, err := inQuarantine(ctx, t, items, true)
	if err != nil || len(suspects) == 0 {
		return items, err
	}
	decided := map[hongbao.Grant]bool{}
	err = l.eachQuarantined(ctx, t, suspects, func(q *Quarantined) { decided[factsOf(&q.Grant)] = !q.Resolved.IsZero() })
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool { return decided[factsOf(it.grant)] }), err
}

// eachQuarantined calls fn for each grant in quarantine that has one of the items' packets. It sets only the grant, the
// reason, and the time of the decision.
func (l *Ledger) eachQuarantined(ctx context.Context, t txn, items []item, fn func(*Quarantined)) error {
	packed, err := l.dialect.pack(keysOf(items)...)
	if err != nil {
		return err
	}
	return t.query(ctx, l.dialect.readQuarantine, packed, func(s scan) error {
		var q Quarantined
		var reason string
		var shard, at, resolved int64
		g := &q.Grant
		err := s(&g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at, &resolved,
			&reason)
		g.Shard, g.Time, q.Reason = int(shard), time.UnixMilli(at).UTC(), Reason(reason)
		if resolved > 0 {
			q.Resolved = time.UnixMilli(resolved).UTC()
		}
		fn(&q)
		return err
	})
}

// factsOf returns the fields of a grant that difference compares.
func factsOf(g *hongbao.Grant) hongbao.Grant {
	return hongbao.Grant{Campaign: g.Campaign, Packet: g.Packet, User: g.User, Amount: g.Amount, Shard: g.Shard,
		Seq: g.Seq}
}
