package campaign

import (
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// Plan has the amounts of a campaign's packets. It is immutable, so it is safe for concurrent use.
type Plan struct {
	// Amounts has the amount of packet i+1 at index i. Packets are numbered in the order of the draw, which is their
	// order in the stock.
	Amounts []hongbao.Amount
}

// NewPlan cuts the campaign's total into packets, shuffles them, and appends the packets of the top-ups. topUps must
// have all top-ups of the campaign in order. The same campaign and seeds give the same plan on every machine and in
// every version; docs/campaigns.md describes the rules.
//
// NewPlan returns a *SpecError for an invalid campaign, and an error for a seed of zeros. It needs 8 bytes of memory
// per packet, and a few seconds for ten million packets.
func NewPlan(c hongbao.Campaign, seed Seed, topUps ...TopUp) (*Plan, error) {
	if err := drawable(&c, seed); err != nil {
		return nil, err
	}
	s := newStream(seed)
	amounts := cut(&c, s)
	shuffle(amounts, s)
	return (&Plan{Amounts: amounts}).with(c, topUps)
}

// drawable returns an error if the packets of the campaign can't be drawn.
func drawable(c *hongbao.Campaign, seed Seed) error {
	var p problems
	check(c, &p)
	if err := p.err(); err != nil {
		return err
	}
	if seed == (Seed{}) {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"the seed of campaign %.80q is all zeros, so it was never set: use NewSeed", c.ID)
	}
	return nil
}

// with returns a plan with the packets of p and of the top-ups. It draws only packets that p does not have. It does
// not change p, which other goroutines may read.
func (p *Plan) with(c hongbao.Campaign, topUps []TopUp) (*Plan, error) {
	out, first := &Plan{Amounts: slices.Clip(p.Amounts)}, c.Packets
	for i := range topUps {
		t := &topUps[i]
		if first == int64(len(out.Amounts)) {
			more, err := t.plan(c)
			if err != nil {
				return nil, fmt.Errorf("generation %d: %w", t.Generation, err)
			}
			out.Amounts = append(out.Amounts, more.Amounts...)
		}
		first += t.Packets
	}
	return out, nil
}

// Amount returns the amount of a packet, and false if the plan has no such packet.
func (p *Plan) Amount(packet int64) (hongbao.Amount, bool) {
	if packet < 1 || packet > int64(len(p.Amounts)) {
		return 0, false
	}
	return p.Amounts[packet-1], true
}

// cut splits the total of a valid campaign into packets. Their order still depends on the amounts, so they must be
// shuffled.
func cut(c *hongbao.Campaign, s *stream) []hongbao.Amount {
	amounts := make([]hongbao.Amount, c.Packets)
	switch c.Split.Mode {
	case hongbao.SplitRandom:
		cutRandom(amounts, c, s)
	case hongbao.SplitTiers:
		i := 0
		for _, t := range c.Split.Tiers {
			for range t.Packets {
				amounts[i] = t.Amount
				i++
			}
		}
	case hongbao.SplitEven:
		each, more := c.Total/hongbao.Amount(c.Packets), int(c.Total%hongbao.Amount(c.Packets))
		for i := range amounts {
			amounts[i] = each
			if i < more {
				amounts[i]++
			}
		}
	}
	return amounts
}

// cutRandom gives every packet the minimum, and distributes the rest of the money by the doubled-mean rule. A packet
// gets a random extra between 0 and twice the mean of the remaining extra money. If that could exceed the maximum, the
// packet gets the maximum less a random amount between 0 and twice the mean of the remaining room below the maximum. So
// the mean stays the same, and the remaining packets can always stay within the bounds.
func cutRandom(amounts []hongbao.Amount, c *hongbao.Campaign, s *stream) {
	low, width := c.Split.Min, c.Split.Max-c.Split.Min
	rest := c.Total - hongbao.Amount(c.Packets)*low
	for i := range amounts {
		left := hongbao.Amount(len(amounts) - i)
		extra := rest
		if doubled := 2 * rest / left; left == 1 {
			// The last packet gets everything that is left, which is between 0 and width.
		} else if doubled <= width {
			extra = hongbao.Amount(s.below(uint64(doubled) + 1))
		} else {
			// No overflow: left*width < left*doubled <= 2*rest < 2^54.
			room := left*width - rest
			extra = width - hongbao.Amount(s.below(uint64(2*room/left)+1))
		}
		amounts[i] = low + extra
		rest -= extra
	}
}

// shuffle is a Fisher-Yates shuffle from the end, so every order is equally likely.
func shuffle(amounts []hongbao.Amount, s *stream) {
	for i := len(amounts) - 1; i > 0; i-- {
		j := s.below(uint64(i) + 1)
		amounts[i], amounts[j] = amounts[j], amounts[i]
	}
}
