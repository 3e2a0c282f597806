package walk

// Version identifies the algorithm that orders a campaign's places for each user. Redis stores it with the campaign. If
// the order changed while a campaign is open, users could get more packets than their limit.
const Version = "1"

// Course has what all walks of one campaign share.
type Course struct {
	places int
	hold   int64 // maximum number of packets of a user
	key    uint64
}

// NewCourse returns the course of a campaign with 1 to hongbao.MaxCampaignShards places. A user may have up to hold
// packets.
func NewCourse(campaign string, places int, hold int64) *Course {
	key := hash(hash(fnvOffset, campaign), "/") // "/" separates campaign and user: no campaign id contains it
	return &Course{places: places, hold: hold, key: key}
}

// Places returns the number of places (shards) of the campaign.
func (c *Course) Places() int { return c.places }

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hash continues a 64-bit FNV-1a hash with text.
func hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// draws is a SplitMix64 generator that determines a user's order. Its seed is the hash of "campaign/user".
type draws uint64

func (c *Course) draws(user string) draws { return draws(hash(c.key, user)) }

func (d *draws) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// home returns the first place of the user's order.
func (c *Course) home(user string) int {
	if c.places == 1 {
		return 0
	}
	d := c.draws(user)
	return int(d.next() % uint64(c.places))
}

// order appends all places to order, in the user's order. It is a Fisher-Yates shuffle.
func (c *Course) order(order []uint8, user string) []uint8 {
	for p := range c.places {
		order = append(order, uint8(p))
	}
	d := c.draws(user)
	for i := range order {
		k := i + int(d.next()%uint64(len(order)-i))
		order[i], order[k] = order[k], order[i]
	}
	return order
}
