package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

func userOperations() []operation {
	return []operation{{
		method: http.MethodGet, path: "/v1/user-data", id: "user-data", summary: "Show what is stored about a user",
		description: "Returns what Redis and the ledger have about a user over all campaigns: wins, balances, dead letters, " +
			"quarantine, pending credits, and the archives that may name the user. It returns no coupon codes. The journal " +
			"records each request, with the hash of the user's id. A page covers `limit` campaigns. To get the next page, " +
			"send the value of the field `next` as the parameter `after`.",
		action: access.ReadUser, answer: find.UserData{},
		params: []*huma.Param{
			userParam("Id of the user. Required."),
			param("after", "query", "The field `next` of the previous page.", web.CampaignID().Schema), limitParam(),
		},
		do: func(ctx context.Context, c *call) (any, error) {
			in := ops.UserQuery{User: c.fields.text("user"), After: c.fields.text("after"), Limit: c.fields.limit()}
			if err := c.fields.done(); err != nil {
				return nil, err
			}
			return c.ops().ShowUser(ctx, in)
		},
	}}
}
