package campaign

import (
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// Plan contains the amounts of a campaign's packets. It does not change, so several goroutines may read it at once.
type Plan struct {
	// Amounts has packet i+1 at index i. Packets are numbered in the order of the draw, which is their order in the
	// stock.
	Amounts []hongbao.Amount
}

// NewPlan cuts the campaign's total into packets and shuffles them. Behind them it draws the packets of topUps, which
// must be all top-ups of the campaign, in order. The same campaign and seeds give the same plan on every machine and
// in every version; docs/campaigns.md has the rules. NewPlan returns a *SpecError for an invalid campaign, and
// refuses a seed of zeros. It takes 8 bytes a packet, and a few seconds for ten million.
func NewPlan(c hongbao.Campaign, seed Seed, topUps ...TopUp) (*Plan, error) {
	if err := drawable(&c, seed); err != nil {
		return nil, err
	}
	s := newStream(seed)
	amounts := cut(&c, s)
	shuffle(amounts, s)
	return (&Plan{Amounts: amounts}).with(c, topUps)
}

// drawable returns why the packets of a campaign can't be drawn, or nil.
func drawable(c *hongbao.Campaign, seed Seed) error {
	var p problems
	check(c, &p)
	if err := p.err(); err != nil {
		return err
	}
	if seed == (Seed{}) {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"the seed of campaign %.80q is all zero, so it was never set: take one from NewSeed", c.ID)
	}
	return nil
}

// with returns a plan that also has the top-ups. It does not draw again the top-ups that p already has. Other
// goroutines may read p meanwhile.
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

// Amount returns the amount of the packet with this number, and false if there is no such packet.
func (p *Plan) Amount(packet int64) (hongbao.Amount, bool) {
	if packet < 1 || packet > int64(len(p.Amounts)) {
		return 0, false
	}
	return p.Amounts[packet-1], true
}

// cut makes the packets of a valid campaign, in an order that is not yet fair.
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

// cutRandom sets the minimum aside for every packet and deals out the rest by doubled mean: a packet gets from 0 to
// twice the mean of the rest. Where that would pass the maximum, cutRandom does the same from above: the packet loses
// from the maximum 0 to twice the mean of the remaining room. So the mean of the rest stays the same, and the rest
// always fits between the bounds.
func cutRandom(amounts []hongbao.Amount, c *hongbao.Campaign, s *stream) {
	low, width := c.Split.Min, c.Split.Max-c.Split.Min
	rest := c.Total - hongbao.Amount(c.Packets)*low
	for i := range amounts {
		left := hongbao.Amount(len(amounts) - i)
		extra := rest
		if doubled := 2 * rest / left; left == 1 {
			// The last packet gets the rest, which is between 0 and width.
		} else if doubled <= width {
			extra = hongbao.Amount(s.below(uint64(doubled) + 1))
		} else {
			// left*width < left*doubled <= 2*rest < 2^54, so it does not overflow.
			room := left*width - rest
			extra = width - hongbao.Amount(s.below(uint64(2*room/left)+1))
		}
		amounts[i] = low + extra
		rest -= extra
	}
}

// shuffle is the Fisher-Yates shuffle, from the end: every order is equally likely.
func shuffle(amounts []hongbao.Amount, s *stream) {
	for i := len(amounts) - 1; i > 0; i-- {
		j := s.below(uint64(i) + 1)
		amounts[i], amounts[j] = amounts[j], amounts[i]
	}
}
