package pages

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// Actions has the actions of the console's buttons. They do the same as the commands.
type Actions struct{ *app.App }

// CheckCampaign reports whether the ledger has a campaign already, and refuses one that can't be created now.
func (c Actions) CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error) {
	_, there, err = campaigns.Of(c.App).Creatable(ctx, spec)
	return there, err
}
