package pages

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// Actions has the actions of the console's buttons. They do the same as the commands.
type Actions struct{ *app.App }

// CheckCampaign returns what is known about a campaign before its creation, and refuses one that can't be created now.
func (c Actions) CheckCampaign(ctx context.Context, spec hongbao.Campaign) (campaigns.Check, error) {
	return campaigns.Of(c.App).Check(ctx, spec)
}
