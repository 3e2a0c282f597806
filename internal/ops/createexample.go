package ops

import (
	"math/bits"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

// exampleSize bounds the packets of an example, so that it takes some milliseconds.
const exampleSize = 100_000

// Example is a draw by the rules of a campaign, with a seed that nobody keeps: the campaign itself gets other amounts.
type Example struct {
	// Packets is the size of the draw. A larger campaign has an example with the same mean.
	Packets           int64
	Smallest, Largest hongbao.Amount
	Bins              []money.Bin
}

// Example draws an example of the amounts of a valid specification. It returns nil unless the amounts are random: then
// the specification says them all.
func (in *CampaignCreate) Example() (*Example, error) {
	c := in.Spec
	if c.Split.Mode != hongbao.SplitRandom {
		return nil, nil
	}
	if c.Packets > exampleSize {
		high, low := bits.Mul64(uint64(c.Total), exampleSize)
		total, _ := bits.Div64(high, low, uint64(c.Packets)) // below Total, because exampleSize is below Packets
		c.Total, c.Packets = hongbao.Amount(total), exampleSize
	}
	plan, err := campaign.NewPlan(c, campaign.NewSeed())
	if err != nil {
		return nil, err
	}
	return &Example{Packets: c.Packets, Smallest: slices.Min(plan.Amounts), Largest: slices.Max(plan.Amounts),
		Bins: money.Histogram(plan.Amounts)}, nil
}
