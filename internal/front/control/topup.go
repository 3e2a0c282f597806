package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

func topUpOperation() operation {
	return operation{
		method: http.MethodPost, path: "/v1/campaigns/{id}/top-ups", id: "top-up", summary: "Add packets to a campaign",
		description: "Funds more packets for a campaign that is open or opens later, and draws them with a new seed. The " +
			"field `plan_hash` of the answer commits to both. 202 means that the packets are in the ledger but not in Redis " +
			"yet. A worker or the campaign's load writes them to Redis. The answer is the order as the ledger recorded it. " +
			"The field `top_ups` of the campaign shows when the packets were in Redis. Sending the same order again changes " +
			"nothing.",
		action: access.TopUpCampaign, body: topUpBody{}, answer: model.TopUp{},
		accepted: model.TopUp{},
		codes: []string{"amount_not_integer_minor_units", "amount_out_of_range", "specification_invalid",
			"specification_impossible", "funded_otherwise", "order_reused", "top_up_open", "campaign_lost", "conflict"},
		do: topUp, inTransaction: true, after: dealTopUp,
	}
}

func topUp(ctx context.Context, c *call) (any, error) {
	f := c.fields
	in := ops.TopUp{Campaign: c.campaign, ID: f.text("id"), Packets: f.number("packets", 1, hongbao.MaxPackets),
		Total: f.amount("total"), Expect: f.amount("expect"), Tiers: f.text("tiers"), Why: f.text("why")}
	if err := f.done(); err != nil {
		return nil, err
	}
	return c.ops().OrderTopUp(ctx, in)
}

// dealTopUp adds the packets of a top-up to Redis. If there are many, it continues after the answer 202. Before the
// campaign is loaded it answers 202, too, because the load adds these packets.
func dealTopUp(ctx context.Context, c *call, answer any) (any, error) {
	id := c.campaign
	var ordered model.TopUp
	if err := json.Unmarshal(answer.(json.RawMessage), &ordered); err != nil { //nolint:forcetypeassert // see change
		return nil, err
	}
	order := &jobs.Order{Name: fmt.Sprintf("top-up of %s, generation %d", id, ordered.Generation), What: model.Say("Top-up of %s", id),
		Campaign: id, Do: func(ctx context.Context, _ *jobs.Report) error { return campaigns.Of(c.app).DealTopUps(ctx, id) }}
	final, err := c.long(ctx, always(answer), order, func(*jobs.Report) any { return answer })
	if campaigns.TopUpWaits(err) {
		return later{answer}, nil
	}
	return final, err
}
