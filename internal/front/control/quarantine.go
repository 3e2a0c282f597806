package control

import (
	"context"
	"math"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

func quarantineOperations() []operation {
	number := param("number", "path", "Number of the grant in the quarantine: its field `id`.",
		&huma.Schema{Type: huma.TypeString, Pattern: "^[1-9][0-9]{0,17}$"})
	return []operation{
		{
			method: http.MethodGet, path: "/v1/quarantine", id: "list-quarantine", summary: "List grants in quarantine",
			description: "Lists the grants that wait for a decision, oldest first. To get the next page, send the value of " +
				"the field `next` as the parameter `after`.",
			action: access.ReadQuarantine, answer: payments.QuarantinePage{},
			params: []*huma.Param{
				flagParam("all", "True to list also the grants that are decided."),
				numberParam("after", "The field `next` of the previous page.", 0, 1<<53), limitParam(),
			},
			do: func(ctx context.Context, c *call) (any, error) {
				in := ops.QuarantineList{After: c.fields.number("after", 0, 1<<53), Limit: c.fields.limit(), All: c.fields.flag("all")}
				if err := c.fields.done(); err != nil {
					return nil, err
				}
				return c.ops().ListQuarantine(ctx, in)
			},
		},
		{
			method: http.MethodGet, path: "/v1/quarantine/{number}", id: "show-quarantine",
			summary: "Show a grant in quarantine", description: "Returns the grant that came, and the grant of the same " +
				"packet that the ledger already had.",
			action: access.ReadQuarantine, answer: payments.Quarantined{}, params: []*huma.Param{number},
			codes: []string{"unknown_quarantine"},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				id, err := c.number()
				if err != nil {
					return nil, err
				}
				return c.ops().ShowQuarantined(ctx, id)
			}),
		},
		{
			method: http.MethodPost, path: "/v1/quarantine/{number}/decide", id: "decide-quarantine",
			summary:     "Pay or void a grant in quarantine",
			description: "Sending the same decision again moves no money and returns the same answer.",
			action:      access.DecideQuarantine, body: decideBody{}, answer: payments.Quarantined{},
			params: []*huma.Param{number}, codes: []string{"unknown_quarantine", "decided_otherwise", "not_payable"},
			do: decide, inTransaction: true,
		},
	}
}

func (c *call) number() (int64, error) {
	text := c.r.PathValue("number")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || id == math.MaxInt64 || strconv.FormatInt(id, 10) != text {
		return 0, web.Refuse("unknown_quarantine", "list the quarantine to see its grants")
	}
	return id, nil
}

func decide(ctx context.Context, c *call) (any, error) {
	in := ops.Decide{Decision: c.fields.text("decision"), Why: c.fields.text("why")}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	var err error
	if in.ID, err = c.number(); err != nil {
		return nil, err
	}
	return c.ops().DecideQuarantined(ctx, in)
}
