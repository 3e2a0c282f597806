package judge

import (
	"context"
	"fmt"
)

// owed has the ranges of events that sink kafka owes, by shard. A shard without any owes every event.
type owed map[int][][2]int64

func (j *Judge) readOwed(ctx context.Context) (owed, error) {
	rows, err := j.db.QueryContext(ctx, `SELECT shard, first_seq, last_seq FROM owed WHERE sink = 'kafka'`)
	if err != nil {
		return nil, fmt.Errorf("read what sink kafka owes: %w", err)
	}
	defer rows.Close()
	o := owed{}
	for rows.Next() {
		var shard int
		var r [2]int64
		if err := rows.Scan(&shard, &r[0], &r[1]); err != nil {
			return nil, err
		}
		o[shard] = append(o[shard], r)
	}
	return o, rows.Err()
}

func (o owed) owes(g *grant) bool {
	for _, r := range o[g.Shard] {
		if g.Seq >= r[0] && g.Seq <= r[1] {
			return true
		}
	}
	return len(o[g.Shard]) == 0
}

// mayLack reports whether the topic may lack a grant: the sink came or went, and does not owe it. A restore may have given
// it another seq; the places know it by either. What was granted after the sink was there is owed in any case.
func (v *verdict) mayLack(g *grant) bool {
	if !v.facts.SinkMoves {
		return false
	}
	shard, not := g.Shard, false
	if has := v.ledger[g.packet()]; has != nil { // a receipt does not say its shard
		shard = has.Shard
	}
	for _, has := range []*grant{g, v.ledger[g.packet()], v.redis[g.packet()]} {
		if has == nil {
			continue
		}
		if after, is := v.facts.OwedAfter[shard]; is && has.Seq > after {
			return false
		}
		not = not || !v.owed.owes(&grant{Shard: shard, Seq: has.Seq})
	}
	return not
}
