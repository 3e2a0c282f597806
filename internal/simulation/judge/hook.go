package judge

// hookRules demands that the receiver of the webhook has each grant of the ledger, and nothing else. posted was read
// before the ledger.
func (v *verdict) hookRules(posted []Win) {
	has := map[packet]bool{}
	for i := range posted {
		p := &posted[i]
		g := &grant{Campaign: p.Campaign, Packet: p.Packet, User: p.User, Amount: p.Amount, Shard: p.Shard, Seq: p.Seq,
			Request: p.Request}
		has[g.packet()] = true
		if paid := v.ledger[g.packet()]; paid == nil {
			v.wrong("the receiver has what the ledger does not have: %v", g)
		} else if !same(paid, g) {
			v.wrong("the receiver has %v, and the ledger has %v", g, paid)
		}
	}
	for p, g := range v.ledger {
		if !has[p] {
			v.missing(g.Campaign, "paid, and not posted to the receiver: %v", g)
		}
	}
}
