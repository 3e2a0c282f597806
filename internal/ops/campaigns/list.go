package campaigns

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// codesFrom returns where a campaign's codes come from: pattern, file, or "" for no codes.
func codesFrom(c *hongbao.Campaign) optional.Text {
	switch {
	case c.Codes == nil:
		return ""
	case c.Codes.Pattern != "":
		return "pattern"
	}
	return "file"
}

// CampaignPage is a page of the list of campaigns.
type CampaignPage struct {
	Campaigns []model.Campaign `json:"campaigns" doc:"The campaigns of this page, in the order of their ids."`
	Next      optional.Text    `json:"next" nullable:"true" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// ListCampaigns returns up to limit campaigns of the ledger with ids greater than after, in the order of their ids. The
// function sees, if not nil, selects the campaigns. It does not read Redis; see AddStatus.
func (a Campaigns) ListCampaigns(ctx context.Context, after string, limit int, sees func(id string) bool) (CampaignPage,
	error) {
	out := CampaignPage{Campaigns: []model.Campaign{}}
	for c, err := range a.app.Ledger().EachCampaign(ctx, after) {
		if err != nil {
			return out, err
		}
		if sees != nil && !sees(c.Spec.ID) {
			continue
		}
		if len(out.Campaigns) == limit {
			out.Next = optional.Text(out.Campaigns[limit-1].ID)
			return out, nil
		}
		out.Campaigns = append(out.Campaigns, InLedger(c))
	}
	return out, nil
}

// statusTime bounds how long a list of campaigns waits for Redis.
const statusTime = 5 * time.Second

// AddStatus adds the data of Redis to the campaigns. The status is unread if Redis does not answer within statusTime.
func (a Campaigns) AddStatus(ctx context.Context, list []model.Campaign) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_ = store.Each(len(list), store.AllAtOnce, func(i int) error { // errors are reported as the status
		if list[i].State != model.MoneyRefunded {
			a.AddRedis(ctx, &list[i])
		}
		return nil
	})
}
