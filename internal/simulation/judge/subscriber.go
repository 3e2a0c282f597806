package judge

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
)

// readHandled reads the effects of the subscribers, in their order.
func (j *Judge) readHandled(ctx context.Context) (effects []grant, err error) {
	if j.rows == nil {
		return nil, nil
	}
	rows, err := j.rows.QueryContext(ctx, `SELECT campaign, packet, user_id, amount, shard, seq, request_id FROM handled`)
	if err != nil {
		return nil, fmt.Errorf("read the effects of the subscribers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var g grant
		if err := rows.Scan(&g.Campaign, &g.Packet, &g.User, &g.Amount, &g.Shard, &g.Seq, &g.Request); err != nil {
			return nil, err
		}
		effects = append(effects, g)
	}
	return effects, rows.Err()
}

// openFile opens a file of SQLite.
func openFile(path string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(5000)"}
	return sql.Open("sqlite", file.String())
}

// forgotten reports whether a grant may be unknown although a subscriber handled it: Redis lost it before the ledger had
// it, and somebody deleted the topic before the restore read it. Its packet may have another user.
func (v *verdict) forgotten(g *grant) bool {
	has := func(places map[packet]*grant) bool { is := places[g.packet()]; return is != nil && same(is, g) }
	return v.facts.TopicAgain && v.facts.RedisLoses && !has(v.redis) && !has(v.ledger)
}

// effectRules demands that each grant of the topic had one effect, and nothing else had any. effects were read before
// the topic.
func (v *verdict) effectRules(effects []grant) {
	done := map[packet]*grant{}
	for i := range effects {
		g := &effects[i]
		switch was, published := done[g.packet()], v.topic[g.packet()]; {
		case was != nil:
			v.wrong("a subscriber handled %v, and also %v", was, g)
		case v.forgotten(g):
		case published == nil && v.facts.TopicAgain:
			v.missing(g.Campaign, "a subscriber handled what the topic no longer has: %v", g)
		case published == nil:
			v.wrong("a subscriber handled what the topic does not have: %v", g)
		case !same(published, g):
			v.wrong("a subscriber handled %v, and the topic has %v", g, published)
		}
		done[g.packet()] = g
	}
	for p, g := range v.topic {
		if done[p] == nil { // no loss excuses it
			v.Missing = append(v.Missing, fmt.Sprintf("in the topic, and no subscriber handled it: %v", g))
		}
	}
}
