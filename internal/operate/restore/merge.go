package restore

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// Source is the origin of a known grant. A lower one precedes a higher one of the same epoch.
type Source int

// The sources.
const (
	Ledger Source = iota
	Redis
	Topic
	Witness
)

// Known is a grant after the last intact event.
type Known struct {
	hongbao.Grant
	From Source
	// Moved reports that this grant gets a new seq, because another grant keeps the old one.
	Moved bool
}

// Claims are what a merge compares each grant with, besides the other grants.
type Claims struct {
	Intact int64 // the last intact event
	// Held are grants that stay, whatever is restored: receipts up to the last intact event, and receipts on other
	// places.
	Held []hongbao.Grant
	// Withheld reports whether an earlier restore has withheld a packet.
	Withheld func(campaign string, packet int64) bool
	// Missed reports whether the shard was opened without this grant of a campaign over several places. The user may
	// have continued to the next place since. A person decides, as for a late grant.
	Missed func(g *hongbao.Grant) bool
	// Limit returns how many packets a user may have of a campaign.
	Limit func(campaign string) int64
}

type packet struct {
	campaign string
	number   int64
}

type holder struct{ campaign, user, request string }

// Merge returns the grants to restore, and those that lose to a grant of higher precedence. Grants that the ledger has
// paid come first, then those of a later epoch, then the order of the sources counts. One packet has one grant, one
// request has one packet, and no user exceeds the limit; but a grant that the ledger has paid stays in any case. One
// seq has one grant: the second one moves. A grant up to the last intact event also moves if its packet is withheld,
// since its seq is done. Any other grant up to there has lost its packet since.
func Merge(known []Known, c Claims) (kept, lost []Known) {
	known = slices.Clone(known)
	slices.SortStableFunc(known, func(a, b Known) int {
		return cmp.Or(cmp.Compare(min(a.From, Redis), min(b.From, Redis)), cmp.Compare(b.Epoch, a.Epoch),
			cmp.Compare(a.From, b.From), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Campaign, b.Campaign),
			cmp.Compare(a.Packet, b.Packet))
	})
	packets, requests := map[packet]hongbao.Grant{}, map[holder]bool{}
	users, seqs := map[holder]int64{}, map[int64]bool{}
	take := func(g *hongbao.Grant) {
		packets[packet{g.Campaign, g.Packet}] = *g
		requests[holder{g.Campaign, g.User, g.RequestID}] = true
		users[holder{g.Campaign, g.User, ""}]++
	}
	for i := range c.Held {
		take(&c.Held[i])
	}
	for _, k := range known {
		rival, dealt := packets[packet{k.Campaign, k.Packet}]
		switch {
		case dealt && rival.User == k.User && rival.RequestID == k.RequestID:
		case dealt, k.From != Ledger && (requests[holder{k.Campaign, k.User, k.RequestID}] ||
			users[holder{k.Campaign, k.User, ""}] >= c.Limit(k.Campaign)):
			lost = append(lost, k)
		case k.Seq <= c.Intact && !c.Withheld(k.Campaign, k.Packet), k.From != Ledger && c.Missed(&k.Grant):
			lost = append(lost, k)
		default:
			take(&k.Grant)
			k.Moved = seqs[k.Seq] || k.Seq <= c.Intact
			seqs[k.Seq] = true
			kept = append(kept, k)
		}
	}
	return kept, lost
}
