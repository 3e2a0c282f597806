package walk

// Version is the version of the order of a campaign's places and of its users' permutations. It is stored with the
// campaign in Redis. Users whose first place changed while the campaign is open could get more than their limit.
const Version = "1"

// Course is the common part of all walks of a campaign.
type Course struct {
	places int
	hold   int64 // packets that a user may have
	key    uint64
}

// NewCourse returns the course of a campaign over 1 to hongbao.MaxCampaignShards places, where a user may have hold
// packets.
func NewCourse(campaign string, places int, hold int64) *Course {
	key := hash(hash(fnvOffset, campaign), "/") // no id of a campaign has a slash
	return &Course{places: places, hold: hold, key: key}
}

// Places returns the number of shards on which the campaign is.
func (c *Course) Places() int { return c.places }

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hash continues a 64-bit FNV-1a.
func hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// draws are the numbers that determine a user's permutation: SplitMix64, seeded by the hash of "campaign/user".
type draws uint64

func (c *Course) draws(user string) draws { return draws(hash(c.key, user)) }

func (d *draws) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// home returns the user's first place, without the rest of their order.
func (c *Course) home(user string) int {
	if c.places == 1 {
		return 0
	}
	d := c.draws(user)
	return int(d.next() % uint64(c.places))
}

// order appends the user's order of all places: each step draws one of the remaining places (Fisher and Yates).
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
