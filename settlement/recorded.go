package settlement

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Recorded gives what the ledger holds of the grants' packets: as paid, whoever has them there; or, of a packet that it has
// not paid, the very same grant in quarantine. The order is any; EntryID, Trace and Code are empty.
func (s *Settler) Recorded(ctx context.Context, grants []hongbao.Grant) (list []hongbao.Grant, err error) {
	items := make([]item, len(grants))
	for i := range grants {
		items[i].grant = &grants[i]
	}
	l := s.config.Ledger
	for part := range slices.Chunk(items, MaxBatch) {
		err := l.read(ctx, func(ctx context.Context, t txn) error {
			has, err := l.readGrants(ctx, t, part)
			for _, g := range has {
				list = append(list, g.Grant)
			}
			if err != nil || len(has) == len(part) {
				return err
			}
			aside, err := l.readAside(ctx, t, slices.DeleteFunc(slices.Clone(part), func(it item) bool {
				_, paid := has[keyOf(it.grant)]
				return paid
			}))
			list = append(list, aside...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read what the ledger holds of %d packets: %w", len(grants), err)
		}
	}
	return list, nil
}

// undecided gives the items without those about which a person has decided: void stays void, and what was paid from the reserve
// is paid. items are sorted by campaign. Few campaigns have such grants, so one look at each is all that most batches cost.
func (l *Ledger) undecided(ctx context.Context, t txn, items []item) (left []item, err error) {
	var suspects []item
	for first := 0; first < len(items); {
		id, last := items[first].grant.Campaign, first
		for last < len(items) && items[last].grant.Campaign == id {
			last++
		}
		err := t.query(ctx, `SELECT 1 FROM quarantine WHERE campaign = $1 AND resolved_at > 0 LIMIT 1`, []any{id}, func(s scan) error {
			suspects = append(suspects, items[first:last]...)
			return s(new(int64))
		})
		if err != nil {
			return nil, err
		}
		first = last
	}
	if len(suspects) == 0 {
		return items, nil
	}
	decided := map[hongbao.Grant]bool{}
	err = l.eachAside(ctx, t, suspects, func(g hongbao.Grant, resolved bool) { decided[factsOf(&g)] = resolved })
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool { return decided[factsOf(it.grant)] }), err
}

// readAside gives those of the items' grants that are in quarantine, decided or not.
func (l *Ledger) readAside(ctx context.Context, t txn, items []item) (list []hongbao.Grant, err error) {
	came := make(map[hongbao.Grant]bool, len(items))
	for _, it := range items {
		came[factsOf(it.grant)] = true
	}
	err = l.eachAside(ctx, t, items, func(g hongbao.Grant, _ bool) {
		if came[factsOf(&g)] {
			list = append(list, g)
		}
	})
	return list, err
}

// eachAside calls fn for what is in quarantine of the items' packets.
func (l *Ledger) eachAside(ctx context.Context, t txn, items []item, fn func(g hongbao.Grant, resolved bool)) error {
	campaigns, packets := make([]string, len(items)), make([]int64, len(items))
	for i, it := range items {
		campaigns[i], packets[i] = it.grant.Campaign, it.grant.Packet
	}
	packed, err := l.dialect.pack(campaigns, packets)
	if err != nil {
		return err
	}
	return t.query(ctx, l.dialect.readQuarantine, packed, func(s scan) error {
		var has hongbao.Grant
		var shard, at, resolved int64
		err := s(&has.Campaign, &has.Packet, &has.User, &has.Amount, &shard, &has.Seq, &has.Epoch, &has.RequestID, &at, &resolved)
		has.Shard, has.Time = int(shard), time.UnixMilli(at).UTC()
		fn(has, resolved > 0)
		return err
	})
}

// factsOf is of a grant what difference compares.
func factsOf(g *hongbao.Grant) hongbao.Grant {
	return hongbao.Grant{Campaign: g.Campaign, Packet: g.Packet, User: g.User, Amount: g.Amount, Shard: g.Shard, Seq: g.Seq}
}

// Intend notes durably, and outside of Redis, that a grant's credit is about to be asked for at a remote under a claim, unless
// that was noted before. It gives the claim of the note that stands, and since when it does. Of a note under another claim nobody
// knows what became of it: the credit may have been booked. After an error the note may stand or not; the same call again tells, and
// counts from then on: it is made only if nothing was sent under the claim meanwhile.
func (s *Settler) Intend(ctx context.Context, g *hongbao.Grant, claim string) (by string, since time.Time, err error) {
	err = s.config.Ledger.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		var changed int64
		now := time.Now().UTC().Truncate(time.Millisecond)
		by, since = claim, now
		err := t.run(ctx, stmt{sql: `INSERT INTO intent (campaign, packet, user_id, amount, shard, seq, claim, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (campaign, packet) DO NOTHING`,
			args: []any{g.Campaign, g.Packet, g.User, int64(g.Amount), int64(g.Shard), g.Seq, claim, since.UnixMilli()}, changed: &changed})
		if err != nil || changed == 1 {
			return nil, err
		}
		found := false
		err = t.query(ctx, `SELECT claim, created_at FROM intent WHERE campaign = $1 AND packet = $2`, []any{g.Campaign, g.Packet},
			func(s scan) error {
				var at int64
				err := s(&by, &at)
				found, since = true, time.UnixMilli(at).UTC()
				return err
			})
		if err == nil && !found {
			err = hongbao.Errorf(hongbao.Transient, "it was removed in between: %w", errAgain)
		}
		if err == nil && by == claim {
			since = now
			err = t.run(ctx, stmt{sql: `UPDATE intent SET created_at = $3 WHERE campaign = $1 AND packet = $2`,
				args: []any{g.Campaign, g.Packet, now.UnixMilli()}})
		}
		return nil, err
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("note in the ledger that packet %d of campaign %s is about to be sent: %w", g.Packet, g.Campaign, err)
	}
	return by, since, nil
}

// Forget removes the note of Intend if it is that of the claim: certainly nothing was booked under it. A repeat changes nothing.
func (s *Settler) Forget(ctx context.Context, g *hongbao.Grant, claim string) error {
	err := s.config.Ledger.write(ctx, func(context.Context, txn) ([]stmt, error) {
		return []stmt{{sql: `DELETE FROM intent WHERE campaign = $1 AND packet = $2 AND claim = $3`, args: []any{g.Campaign, g.Packet, claim}}}, nil
	})
	if err != nil {
		return fmt.Errorf("remove from the ledger that packet %d of campaign %s was to be sent: %w", g.Packet, g.Campaign, err)
	}
	return nil
}
