package campaigns

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// ListedCampaign is one campaign in the list of campaigns.
type ListedCampaign struct {
	ID       string           `json:"id" doc:"The campaign's id."`
	Name     string           `json:"name" doc:"The campaign's name for people."`
	Kind     hongbao.Kind     `json:"kind" doc:"What the packets are: 'red_packet' or 'coupon'."`
	Packets  int64            `json:"packets" doc:"Number of packets, including those of top-ups."`
	Currency string           `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217; absent for coupons without a value."`
	Funded   hongbao.Amount   `json:"funded_amount" doc:"Amount that the sponsor has paid in, in minor units."`
	Granted  hongbao.Amount   `json:"granted_amount" doc:"Amount that the ledger has booked for users, in minor units."`
	Refunded hongbao.Amount   `json:"refunded_amount" doc:"Amount that went back to the sponsor, in minor units."`
	State    model.MoneyState `json:"state" enum:"funded,refunded" doc:"State of the campaign in the ledger."`
	Status   string           `json:"status" enum:"created,loading,not_started,open,paused,sold_out,ended,closed,refunded,frozen,unread" doc:"State that a grab would find, as in the console. 'created' means that the campaign is not loaded. 'unread' means that Redis could not be read."`
	From     time.Time        `json:"from" doc:"Start of the window for grabs."`
	To       time.Time        `json:"to" doc:"End of the window for grabs."`
	TimeZone string           `json:"time_zone" doc:"IANA name of the campaign's time zone."`
	Codes    optional.Text    `json:"codes" nullable:"true" doc:"Source of the coupon codes: 'pattern' or 'file'. Null if the campaign has no codes."`
}

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
	Campaigns []ListedCampaign `json:"campaigns" doc:"The campaigns of this page, in the order of their ids."`
	Next      optional.Text    `json:"next" nullable:"true" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// ListCampaigns returns up to limit campaigns of the ledger with ids greater than after, in the order of their ids. The
// function sees, if not nil, selects the campaigns. It does not read Redis; see AddStatus.
func (a Campaigns) ListCampaigns(ctx context.Context, after string, limit int, sees func(id string) bool) (CampaignPage,
	error) {
	out := CampaignPage{Campaigns: []ListedCampaign{}}
	for c, err := range a.app.Ledger().EachCampaign(ctx, after) {
		if err != nil {
			return out, err
		}
		s := &c.Spec
		if sees != nil && !sees(s.ID) {
			continue
		}
		if len(out.Campaigns) == limit {
			out.Next = optional.Text(out.Campaigns[limit-1].ID)
			return out, nil
		}
		out.Campaigns = append(out.Campaigns, ListedCampaign{s.ID, s.Name, s.Kind, c.Packets, s.Currency, c.Funded,
			c.Granted, c.Refunded, c.State, ConsoleCampaign(c).State, s.From.UTC(), s.To.UTC(), s.TimeZone, codesFrom(s)})
	}
	return out, nil
}

// statusTime bounds how long a list of campaigns waits for Redis.
const statusTime = 5 * time.Second

// AddStatus sets the campaigns' status from Redis. The status is unread if Redis does not answer within statusTime.
func (a Campaigns) AddStatus(ctx context.Context, list []ListedCampaign) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_ = store.Each(len(list), store.AllAtOnce, func(i int) error { // errors are reported as the status
		c := model.Campaign{ID: list[i].ID, State: list[i].Status}
		if c.State != string(model.MoneyRefunded) {
			a.AddRedis(ctx, &c)
			list[i].Status = c.State
		}
		return nil
	})
}
