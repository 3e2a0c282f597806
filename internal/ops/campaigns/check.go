package campaigns

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Check is what is known about a campaign before its creation.
type Check struct {
	// Exists reports whether the ledger has the campaign already: creating it again changes nothing.
	Exists bool
	// Funded is what the sponsor has paid in for all campaigns in this currency, less what it got back.
	Funded hongbao.Amount
}

// Check refuses a campaign that can't be created now. It changes nothing.
func (a Campaigns) Check(ctx context.Context, c hongbao.Campaign) (out Check, err error) {
	if _, out.Exists, err = a.Creatable(ctx, c); err != nil {
		return out, err
	}
	balance, _, err := a.app.Ledger().Balance(ctx, tables.SponsorAccount(c.Sponsor, c.Currency))
	out.Funded = -balance
	return out, err
}
