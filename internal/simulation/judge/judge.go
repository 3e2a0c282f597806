package judge

import (
	"context"
	"fmt"
	"slices"
)

// mostSeq is a bound that no history comes near, unless a shard opened far ahead.
const mostSeq = 1_000_000_000

const theTopic = "the topic"

// packet is the name of a packet in all stores.
type packet struct {
	campaign string
	number   int64
}

func (g *grant) packet() packet { return packet{g.Campaign, g.Packet} }

func (g *grant) String() string {
	return fmt.Sprintf("packet %d of %s, amount %d, for %s by %s, seq %d", g.Packet, g.Campaign, g.Amount, g.User,
		g.Request, g.Seq)
}

// same reports whether two stores have the same facts. A grant that Redis had lost may come back with another seq.
func same(a, b *grant) bool {
	return a.packet() == b.packet() && a.User == b.User && a.Amount == b.Amount && a.Request == b.Request
}

// verdict collects findings.
type verdict struct {
	Findings

	facts  *Facts
	lost   map[string]bool // campaigns of which a person has accepted a loss
	ledger map[packet]*grant
	topic  map[packet]*grant
	redis  map[packet]*grant
	held   map[string]*held
	money  map[string]*money
	owed   owed
}

// wrong notes what must never be.
func (v *verdict) wrong(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// missing notes what must come, unless a person has accepted a loss of the campaign.
func (v *verdict) missing(campaign, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); v.lost[campaign] {
		v.Losses = append(v.Losses, text)
	} else {
		v.Missing = append(v.Missing, text)
	}
}

func newVerdict(facts *Facts) *verdict {
	v := &verdict{facts: facts, lost: map[string]bool{}, ledger: map[packet]*grant{}, topic: map[packet]*grant{},
		redis: map[packet]*grant{}, held: map[string]*held{}}
	for _, c := range facts.Campaigns {
		v.lost[c.ID] = c.Lost
	}
	return v
}

// Judge compares the stores with what users were told.
func (j *Judge) Judge(ctx context.Context, facts *Facts) (*Findings, error) {
	v := newVerdict(facts)
	grants, campaigns, err := j.readLedger(ctx)
	if err != nil {
		return nil, err
	}
	v.money = campaigns
	effects, err := j.readHandled(ctx)
	if err != nil {
		return nil, err
	}
	if v.owed, err = j.readOwed(ctx); err != nil {
		return nil, err
	}
	if err := j.readTopic(ctx); err != nil {
		return nil, err
	}
	for _, c := range facts.Campaigns {
		if v.held[c.ID], err = j.readRedis(ctx, c.ID); err != nil {
			return nil, err
		}
	}
	seqs, err := j.lastSeqs(ctx)
	if err != nil {
		return nil, err
	}
	for key, seq := range seqs {
		if seq > mostSeq {
			v.wrong("%s: the last seq is %d", key, seq)
		}
	}
	v.once("the ledger", grants, v.ledger)
	v.once(theTopic, j.records(), v.topic)
	for _, c := range facts.Campaigns {
		v.once("Redis", v.held[c.ID].receipts, v.redis)
	}
	v.toldRules()
	v.storeRules()
	if j.rows != nil {
		v.effectRules(effects)
	}
	if facts.Hook {
		v.hookRules(facts.Posted)
	}
	if t := facts.Twice; t != nil {
		quarantine, err := j.readQuarantine(ctx, t)
		if err != nil {
			return nil, err
		}
		v.twiceRules(quarantine, j.records(), v.held[t.Campaign].receipts)
	}
	for _, c := range facts.Campaigns {
		if campaigns[c.ID] == nil {
			v.wrong("the ledger has no campaign %s", c.ID)
			continue
		}
		if err := j.countRules(ctx, v, c.ID); err != nil {
			return nil, err
		}
		v.limit(c, grants)
		v.sums(c, campaigns[c.ID], grants)
	}
	slices.Sort(v.Wrong)
	slices.Sort(v.Missing)
	return &v.Findings, nil
}

func (j *Judge) records() []grant {
	list := make([]grant, len(j.copies))
	for i := range j.copies {
		list[i] = j.copies[i].grant
	}
	return list
}

// once demands that a place has each packet once. After an accepted loss the topic may have the same grant again:
// Redis no longer knows that it was published. Subscribers drop the copy.
func (v *verdict) once(place string, grants []grant, to map[packet]*grant) {
	for i := range grants {
		g := &grants[i]
		switch was := to[g.packet()]; {
		case v.twice(g.packet()) && was != nil && was.User != g.User && was.Amount == g.Amount:
		case was == nil:
			to[g.packet()] = g
		case place == theTopic && v.lost[g.Campaign] && same(was, g):
			v.missing(g.Campaign, "%s has it twice: %v", place, g)
		default:
			v.wrong("%s has %v, and also %v", place, was, g)
		}
	}
}

// toldRules demands that a told packet is once in each place with the same facts, and that no two users were told it.
func (v *verdict) toldRules() {
	owner := map[packet]string{}
	byRequest := map[string]int64{}
	told := map[packet]bool{}
	for i := range v.facts.Told {
		w := &v.facts.Told[i]
		t := &grant{Campaign: w.Campaign, User: w.User, Request: w.Request, Packet: w.Packet, Amount: w.Amount,
			Shard: w.Shard, Seq: w.Seq}
		if user, has := owner[t.packet()]; has && user != t.User && !v.twice(t.packet()) {
			v.wrong("%s and %s were told one packet: %v", user, t.User, t)
		}
		owner[t.packet()] = t.User
		key := t.Campaign + " " + t.User + " " + t.Request
		if was, has := byRequest[key]; has && was != t.Packet {
			v.wrong("the request %s was answered by the packets %d and %d", key, was, t.Packet)
		}
		byRequest[key] = t.Packet
		if told[t.packet()] {
			continue
		}
		told[t.packet()] = true
		if _, withheld := v.held[t.Campaign].withheld[t.Packet]; withheld && v.ledger[t.packet()] == nil && !v.facts.Decided {
			v.Losses = append(v.Losses, fmt.Sprintf("told and withheld: %v", t))
			continue
		}
		if v.lost[t.Campaign] && v.ledger[t.packet()] == nil {
			v.Unpaid++
		}
		v.everywhere("told", t)
	}
	gaveUp := map[Win]bool{}
	for _, w := range v.facts.GaveUp {
		gaveUp[w] = true
	}
	for p, g := range v.ledger {
		if !told[p] && !gaveUp[Win{Campaign: g.Campaign, User: g.User, Request: g.Request}] {
			v.missing(g.Campaign, "the ledger has %v, and nobody was told", g)
		}
	}
}

// storeRules demands that the places have the same.
func (v *verdict) storeRules() {
	for _, place := range []struct {
		name   string
		grants map[packet]*grant
	}{{"paid", v.ledger}, {"in the topic", v.topic}, {"in Redis", v.redis}} {
		for _, g := range place.grants {
			v.everywhere(place.name, g)
		}
	}
}

// everywhere demands that all places have a grant with the same facts.
func (v *verdict) everywhere(why string, g *grant) {
	if v.twice(g.packet()) {
		return
	}
	for _, place := range []struct {
		name   string
		grants map[packet]*grant
	}{{"the ledger", v.ledger}, {theTopic, v.topic}, {"Redis", v.redis}} {
		if place.name == "Redis" && v.money[g.Campaign].ended() {
			continue // the campaign leaves Redis
		}
		switch has := place.grants[g.packet()]; {
		case has == nil && place.name == theTopic && v.mayLack(g):
			v.NotOwed++
		case has == nil:
			v.missing(g.Campaign, "%s, and not in %s: %v", why, place.name, g)
		case !same(has, g):
			v.wrong("%s: %v; %s has %v", why, g, place.name, has)
		}
	}
}

// limit demands that no user has more packets than the campaign allows.
func (v *verdict) limit(c Campaign, grants []grant) {
	n := map[string]int64{}
	for i := range grants {
		if grants[i].Campaign == c.ID {
			n[grants[i].User]++
		}
	}
	for user, has := range n {
		if has > c.Hold+v.facts.Above[c.ID+" "+user] {
			v.wrong("%s has %d packets of %s, at most %d are allowed", user, has, c.ID, c.Hold)
		}
	}
}

// sums demands that granted, stock, withheld and refunded are the whole campaign.
func (v *verdict) sums(c Campaign, m *money, grants []grant) {
	var n, amount int64
	for i := range grants {
		if grants[i].Campaign == c.ID {
			n, amount = n+1, amount+grants[i].Amount
		}
	}
	if n != m.grants || amount != m.granted || m.funded != c.Total || m.packets != c.Packets {
		v.wrong("the ledger's sums of %s are %+v, its grants are %d with %d", c.ID, *m, n, amount)
	}
	if m.refunds > 1 || m.moved != m.refunded || m.ended() != (m.refunds == 1) {
		v.wrong("%s is %s, %d are refunded, and %d transfers of %d went to its sponsor", c.ID, m.state, m.refunded, m.refunds, m.moved)
	}
	if m.ended() {
		if amount+m.refunded != c.Total {
			v.wrong("%s has %d, %d are granted and %d refunded", c.ID, c.Total, amount, m.refunded)
		}
		return
	}
	packets, all := n, amount+m.refunded
	for _, part := range []map[int64]int64{v.held[c.ID].stock, v.held[c.ID].withheld} {
		for number, amount := range part {
			if p := (packet{c.ID, number}); v.twice(p) && v.ledger[p] != nil {
				continue // nobody has won it again
			}
			packets, all = packets+1, all+amount
			if g := v.ledger[packet{c.ID, number}]; g != nil {
				v.missing(c.ID, "Redis still has a packet that is paid: %v", g)
			}
		}
	}
	if packets != c.Packets || all != c.Total {
		v.missing(c.ID, "%s has %d packets with %d, and granted, stock, withheld and refunded are %d with %d", c.ID,
			c.Packets, c.Total, packets, all)
	}
}
