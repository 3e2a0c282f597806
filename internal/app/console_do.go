package app

import (
	"context"

	"github.com/hongbao-project/hongbao"
)

// PageActions has the actions of the console's buttons. They do the same as the commands.
type PageActions struct{ *App }

// CheckCampaign reports whether the ledger has a campaign already, and refuses one that can't be created now.
func (c PageActions) CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error) {
	_, there, err = c.creatable(ctx, spec)
	return there, err
}
