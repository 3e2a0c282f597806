package judge

import (
	"context"
	"fmt"
	"strings"
)

// Twice is a packet that somebody has put back into the stock by hand, after a user was told it.
type Twice struct {
	Campaign string
	Packet   int64
}

// decided is a grant in quarantine.
type decided struct {
	user   string
	amount int64
	paid   bool // from the reserve
}

// readQuarantine reads the grants of a packet in quarantine, and which of them the reserve has paid.
func (j *Judge) readQuarantine(ctx context.Context, t *Twice) (list []decided, err error) {
	rows, err := j.db.QueryContext(ctx, `SELECT q.user_id, q.amount, q.resolution, COALESCE(t.amount, 0) FROM quarantine AS q
		LEFT JOIN transfer AS t ON t.id = 'quarantine:' || q.campaign || ':' || q.packet || ':' || q.user_id
		WHERE q.campaign = ? AND q.packet = ?`, t.Campaign, t.Packet)
	if err != nil {
		return nil, fmt.Errorf("read the quarantine: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var d decided
		var resolution string
		var paid int64
		if err := rows.Scan(&d.user, &d.amount, &resolution, &paid); err != nil {
			return nil, err
		}
		d.paid = paid == d.amount && strings.HasPrefix(resolution, "paid from the reserve")
		list = append(list, d)
	}
	return list, rows.Err()
}

// twice reports whether somebody has put this packet back.
func (v *verdict) twice(p packet) bool {
	t := v.facts.Twice
	return t != nil && p == packet{t.Campaign, t.Packet}
}

// twiceRules judges the packet that somebody has put back. Of the users who were told it, the ledger has paid one from
// the campaign, and the reserve each other one, once. The topic and Redis have each of them once.
func (v *verdict) twiceRules(quarantine []decided, topic, redis []grant) {
	p := packet{v.facts.Twice.Campaign, v.facts.Twice.Packet}
	users := map[string]bool{}
	for _, t := range v.facts.Told {
		if (packet{t.Campaign, t.Packet}) == p {
			users[t.User] = true
		}
	}
	count := func(grants []grant, user string) (n int) {
		for i := range grants {
			if grants[i].packet() == p && grants[i].User == user {
				n++
			}
		}
		return n
	}
	if len(users) > 2 {
		v.wrong("packet %v was put back once, and %d users were told it", p, len(users))
	}
	for user := range users {
		paid := v.paidFor(p, user, quarantine)
		for place, n := range map[string]int{"the ledger": paid, theTopic: count(topic, user), "Redis": count(redis, user)} {
			if n > 1 {
				v.wrong("%s has packet %v for %s %d times", place, p, user, n)
			} else if n == 0 {
				v.missing(p.campaign, "%s lacks packet %v for %s", place, p, user)
			}
		}
	}
}

// paidFor returns how often a user was paid for a packet: by its campaign, and from quarantine.
func (v *verdict) paidFor(p packet, user string, quarantine []decided) (n int) {
	if g := v.ledger[p]; g != nil && g.User == user {
		n++
	}
	for _, d := range quarantine {
		if d.user == user && d.paid {
			n++
		}
	}
	return n
}
