package restore

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// Source is where a known grant comes from. Of two grants of an epoch, the one with the lower source has precedence.
type Source int

// The sources.
const (
	Ledger Source = iota
	Redis
	Topic
	Witness
)

// Known is a grant after the intact seq that a source knows.
type Known struct {
	hongbao.Grant
	From Source
	// Moved reports whether this grant gets a new seq, because another grant keeps its old one.
	Moved bool
}

// Constraints has what Merge compares each grant with, besides the other grants.
type Constraints struct {
	// Passed reports whether a grant's seq is not above the intact seq.
	Passed func(g *hongbao.Grant) bool
	// Fixed has the grants that stay in any case: receipts up to the intact seq, and receipts on other places.
	Fixed []hongbao.Grant
	// Withheld reports whether an earlier restore has withheld this packet.
	Withheld func(campaign string, packet int64) bool
	// LeftOut reports whether an earlier opening left out this grant, which belongs to a campaign with several places.
	// The user may have got a packet on another place since, so a person decides.
	LeftOut func(g *hongbao.Grant) bool
	// Limit returns the maximum number of packets of a user in the campaign.
	Limit func(campaign string) int64
}

type packet struct {
	campaign string
	number   int64
}

type holder struct{ campaign, user, request string }

// Merge returns the grants to restore, and the grants that lose to one of higher precedence. Grants that the ledger has
// paid come first, then grants of a later epoch, then grants of a lower Source.
//
// One packet has one grant, and one request has one packet. No user exceeds the limit, except by grants that the ledger
// has paid. One seq has one grant, and a second grant with that seq moves. A grant up to the intact seq also moves if
// its packet is withheld, because its old seq already counts as done. Any other grant up to the intact seq loses,
// because it has already lost its packet.
func Merge(known []Known, c Constraints) (kept, lost []Known) {
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
	for i := range c.Fixed {
		take(&c.Fixed[i])
	}
	for _, k := range known {
		rival, dealt := packets[packet{k.Campaign, k.Packet}]
		switch {
		case dealt && rival.User == k.User && rival.RequestID == k.RequestID:
		case dealt, k.From != Ledger && (requests[holder{k.Campaign, k.User, k.RequestID}] ||
			users[holder{k.Campaign, k.User, ""}] >= c.Limit(k.Campaign)):
			lost = append(lost, k)
		case c.Passed(&k.Grant) && !c.Withheld(k.Campaign, k.Packet), k.From != Ledger && c.LeftOut(&k.Grant):
			lost = append(lost, k)
		default:
			take(&k.Grant)
			k.Moved = seqs[k.Seq] || c.Passed(&k.Grant)
			seqs[k.Seq] = true
			kept = append(kept, k)
		}
	}
	return kept, lost
}
