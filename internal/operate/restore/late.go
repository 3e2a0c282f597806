package restore

import "github.com/hongbao-project/hongbao"

// Late is a grant that a witness reports after the shard has opened.
type Late struct {
	hongbao.Grant
	Held     []hongbao.Grant // what the user has of the campaign, on all places
	Withheld bool            // the packet is withheld
	Open     bool            // the campaign is open
	Places   int             // of the campaign
	Limit    int64           // packets that a user may have of the campaign
}

// Fate is the outcome of a late grant.
type Fate int

// The fates.
const (
	Has        Fate = iota // the user has this packet already
	Granted                // the user gets the withheld packet, under a new seq
	Quarantine             // a person decides
)

// Judge returns the outcome of a late grant. With several places a person decides: the user may be getting another
// packet on another place, and no script sees both places.
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
