package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// ErrMayNotSpend says that the caller's key may not spend this money. An error that wraps it has class Permanent.
var ErrMayNotSpend = errors.New("the API key may not spend this")

// Spending limits what a treasurer's key may spend on campaigns. The zero value has no limit.
type Spending struct {
	// Sponsors are the sponsors whose money the key may spend; empty means any.
	Sponsors []string `json:"sponsors,omitempty"`
	// LargestTotal limits the total of one campaign, including top-ups, in minor units of its currency. 0 means no
	// limit.
	LargestTotal hongbao.Amount `json:"largest_total,omitempty"`
}

// MaySpend returns an error if the actor of ctx may not fund the campaign. total is the campaign's funding after the
// change.
func MaySpend(ctx context.Context, sponsor string, total hongbao.Amount) error {
	who, _ := ctx.Value(actorKey{}).(Actor)
	s := &who.Spending
	switch {
	case len(s.Sponsors) > 0 && !slices.Contains(s.Sponsors, sponsor):
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: sponsor %.128q is not among its sponsors (%s)", ErrMayNotSpend, sponsor,
			strings.Join(s.Sponsors, ", "))
	case s.LargestTotal > 0 && total > s.LargestTotal:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: the campaign would be funded with %d minor units, and the key's "+
			"largest total of one campaign is %d", ErrMayNotSpend, total, s.LargestTotal)
	}
	return nil
}

// checkSpending returns every reason not to store the key because of its spending limits.
func (k *Key) checkSpending() (errs []error) {
	if (len(k.Sponsors) > 0 || k.LargestTotal != 0) && k.Role != RoleTreasurer {
		errs = append(errs, fmt.Errorf("sponsors and a largest total bound what a treasurer spends: role %.40q spends nothing",
			k.Role))
	}
	if len(k.Sponsors) > maxSponsors {
		errs = append(errs, fmt.Errorf("it names %d sponsors: want up to %d", len(k.Sponsors), maxSponsors))
	}
	for _, s := range k.Sponsors {
		if err := hongbao.CheckID(s); err != nil {
			errs = append(errs, fmt.Errorf("sponsor %.140q: %w", s, err))
		}
	}
	if k.LargestTotal < 0 || k.LargestTotal > hongbao.MaxAmount {
		errs = append(errs, fmt.Errorf("the largest total is %d: want 1 to %d minor units", k.LargestTotal, hongbao.MaxAmount))
	}
	return errs
}
