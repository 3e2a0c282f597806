package restore_test

import "github.com/hongbao-project/hongbao"

// lateGrant is a grant that a witness reports after the shard has opened.
type lateGrant struct {
	hongbao.Grant
	Held     []hongbao.Grant // the user's grants in the campaign, on all places
	Withheld bool            // whether the packet is withheld
	Open     bool            // whether the campaign is open
	Places   int             // number of the campaign's places
	Limit    int64           // maximum number of packets of a user in the campaign
}

// fate is what happens to a late grant.
type fate int

// The fates.
const (
	has        fate = iota // nothing: the user has this packet
	granted                // the user gets the withheld packet, under a new seq
	quarantine             // a person decides
)

// fateOf decides about a late grant; lua/grant_withheld.lua does so in what is built. If the campaign has several
// places, a person decides: another place may be granting to the user at the same time, and no script sees both places.
func fateOf(l lateGrant) fate {
	request := false
	for i := range l.Held {
		if h := &l.Held[i]; h.RequestID == l.RequestID {
			if h.Packet == l.Packet {
				return has
			}
			request = true
		}
	}
	if !request && l.Withheld && l.Open && l.Places == 1 && int64(len(l.Held)) < l.Limit {
		return granted
	}
	return quarantine
}

func (w *world) lateGrants(a *agent) {
	for {
		a.wait(300)
		for _, n := range w.nodes {
			s := n.of(a)
			for s == n.of(a) && s.data.guard(s.token, 0, sight{}) == "" && len(s.data.late) > 0 && w.ledger.downUntil <= w.now {
				w.judgeLate(a, n, s, s.data.late[0])
				if len(s.data.late)%8 == 0 {
					a.step("late")
				}
			}
		}
	}
}

func (w *world) judgeLate(a *agent, n *node, s *server, p proof) {
	d, g, token := s.data, p.Grant, s.token
	done := func() {
		do(n, s, func(d *data) {
			if len(d.late) > 0 && d.late[0] == p {
				d.late = d.late[1:]
			}
		})
	}
	c := d.camps[g.Campaign]
	if p.Seq == 0 || c == nil {
		done()
		return
	}
	spec := w.spec(g.Campaign)
	l := lateGrant{
		Grant: g, Withheld: c.has(g.Packet), Open: c.state == "open", Places: len(spec.places),
		Limit: int64(spec.limit),
	}
	for _, shard := range spec.places {
		if c := w.nodes[shard].up.data.camps[g.Campaign]; c != nil {
			l.Held = append(l.Held, c.receipts[g.User]...)
		}
	}
	epoch := d.epoch
	switch fateOf(l) {
	case has:
		done()
	case granted:
		a.step("grant a hole")
		ms, limit, bug := w.now, int64(spec.limit), w.bug
		if call(n, s, func(d *data) string { return d.hole(token, epoch, g, limit, ms, bug) }) == "" {
			w.holes[idOf(&g)] = true
			w.stats["late grants"]++
		}
	case quarantine:
		if paid, is := w.ledger.grants[keyOf(&g)]; !is || idOf(&paid) != idOf(&g) {
			w.report(&g)
			w.stats["late grants for a person"]++
		}
		done()
	}
}

// filter is the set of users who have packets of a campaign, for one revision of the campaign.
type filter struct {
	revision int64
	users    map[string]bool
}

// full returns the campaign on a shard that has no packet left, with its revision and epoch. It returns nil if packets
// are left.
func (w *world) full(a *agent, s *spec, shard int) (c *camp, revision, epoch int64) {
	to := w.nodes[shard].of(a)
	c = to.data.camps[s.id]
	if to.data.guard(to.token, 0, sight{}) != "" || c == nil || c.state != "open" || c.left() > 0 ||
		c.dealt < c.announced {
		return nil, 0, 0
	}
	return c, c.revision, to.data.epoch
}

// filterBuilder builds, again and again, a filter for each campaign that has no packets left on any place.
func (w *world) filterBuilder(a *agent) {
	for {
		a.wait(300)
		for _, s := range w.specs {
			f := filter{users: map[string]bool{}}
			var epochs []int64
			ok := true
			for _, shard := range s.places {
				c, revision, epoch := w.full(a, s, shard)
				if ok = c != nil && (f.revision == 0 || f.revision == revision); !ok {
					break
				}
				f.revision = revision
				epochs = append(epochs, epoch)
				for user, held := range c.receipts {
					if len(held) > 0 {
						f.users[user] = true
					}
				}
				a.step("read the winners")
			}
			for j, shard := range s.places {
				if ok {
					c, revision, epoch := w.full(a, s, shard)
					ok = c != nil && revision == f.revision && epoch == epochs[j]
				}
			}
			if ok {
				w.filters[s.id] = f
				w.stats["filters"]++
				w.note(a, "filter of", s.id, f.revision, epochs)
			}
		}
	}
}

// lateFilter reports whether a grab may be refused by a filter: the user is not in the filter, and a place confirms the
// filter's revision.
func (w *world) lateFilter(a *agent, q *request) bool {
	f, ok := w.filters[q.spec.id]
	if !ok || f.users[q.user] || w.rng.IntN(4) == 0 {
		return false
	}
	c, revision, _ := w.full(a, q.spec, q.spec.places[w.rng.IntN(len(q.spec.places))])
	if c == nil || revision != f.revision {
		return false
	}
	w.stats["losers by a filter"]++
	w.note(a, "a filter has not", q.id, q.user, f.revision)
	return true
}
