package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// topUpBody is the body of a top-up.
type topUpBody struct {
	ID      string `json:"id" minLength:"1" maxLength:"128" doc:"The order's own id, chosen by you: the same again changes nothing."`
	Packets int64  `json:"packets" minimum:"1" maximum:"10000000" doc:"How many packets are added."`
	Total   int64  `json:"total" minimum:"0" maximum:"9007199254740991" doc:"What they hold together, in minor units."`
	Expect  int64  `json:"expect" minimum:"0" maximum:"9007199254740991" doc:"What the campaign is funded with so far, exactly: ledger.funded of the campaign."`
	Tiers   string `json:"tiers,omitempty" doc:"Of a campaign that is split by tiers: AMOUNTxPACKETS, with spaces between them."`
	Why     string `json:"why" minLength:"1" maxLength:"1000" doc:"Kept with the order."`
}

func topUpOperation() operation {
	return operation{
		method: http.MethodPost, path: "/v1/campaigns/{id}/top-ups", id: "top-up", summary: "Add packets to a campaign",
		description: "Funds more packets of a campaign that is open, or is still to open, and draws them by a seed of their " +
			"own; plan_hash commits to that. 202 says that they are in the ledger and not in Redis yet: a worker brings them " +
			"there, or the campaign's load. The answer is the order as the ledger took it: when its packets were dealt stands " +
			"in the campaign's top_ups. The same order again changes nothing.",
		action: access.TopUpCampaign, body: topUpBody{}, answer: app.TopUp{},
		accepted: app.TopUp{},
		codes: []string{"amount_not_integer_minor_units", "amount_out_of_range", "specification_invalid",
			"specification_impossible", "funded_otherwise", "order_reused", "top_up_open", "campaign_lost", "conflict"},
		do: topUp, together: true, after: dealTopUp,
	}
}

func topUp(ctx context.Context, c *call) (any, error) {
	o := app.TopUpOrder{Campaign: c.campaign, ID: c.fields.text("id"),
		Packets: c.fields.number("packets", 1, hongbao.MaxPackets),
		Total:   c.fields.amount("total"), Expect: c.fields.amount("expect"),
		Decision: stream.Decision{By: c.actor.Who, Why: c.fields.why()}}
	var err error
	if o.Tiers, err = app.ParseTiers(strings.Fields(c.fields.text("tiers"))); err != nil {
		c.fields.fail("tiers: %v", err)
	}
	if hongbao.CheckID(o.ID) != nil {
		c.fields.fail("id is required: 1 to 128 printable ASCII characters without spaces")
	}
	if o.Packets == 0 {
		c.fields.fail("packets is required, from 1 to %d", hongbao.MaxPackets)
	}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	return c.app.OrderTopUp(ctx, o)
}

// dealTopUp continues by itself when there are many packets. A campaign's load deals the packets ordered before it.
func dealTopUp(ctx context.Context, c *call, answer any) (any, error) {
	id := c.campaign
	var ordered app.TopUp
	if err := json.Unmarshal(answer.(json.RawMessage), &ordered); err != nil { //nolint:forcetypeassert // see change
		return nil, err
	}
	name := fmt.Sprintf("top-up of %s, generation %d", id, ordered.Generation)
	final, err := c.long(ctx, answer, &job{name: name,
		do: func(ctx context.Context) (any, error) { return answer, c.app.DealTopUps(ctx, id) }})
	if app.TopUpWaits(err) {
		return later{answer}, nil
	}
	return final, err
}
