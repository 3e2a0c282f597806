package restore

import "github.com/hongbao-project/hongbao"

// Late is a grant that a witness reports after the shard has opened.
type Late struct {
	hongbao.Grant
	Held     []hongbao.Grant // the user's grants in the campaign, on all places
	Withheld bool            // whether the packet is withheld
	Open     bool            // whether the campaign is open
	Places   int             // number of the campaign's places
	Limit    int64           // maximum number of packets of a user in the campaign
}

// Fate is what happens to a late grant.
type Fate int

// The fates.
const (
	Has        Fate = iota // nothing: the user has this packet
	Granted                // the user gets the withheld packet, under a new seq
	Quarantine             // a person decides
)

// Judge decides about a late grant. If the campaign has several places, a person decides: another place may be granting
// to the user at the same time, and no script sees both places.
func Judge(l Late) Fate {
	request := false
	for i := range l.Held {
		if h := &l.Held[i]; h.RequestID == l.RequestID {
			if h.Packet == l.Packet {
				return Has
			}
			request = true
		}
	}
	if !request && l.Withheld && l.Open && l.Places == 1 && int64(len(l.Held)) < l.Limit {
		return Granted
	}
	return Quarantine
}
