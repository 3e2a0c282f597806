package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func journalOperations() []operation {
	return []operation{{
		method: http.MethodGet, path: "/v1/journal", id: "journal", summary: "List who did what",
		description: "Lists what commands and callers over HTTP did, and what callers were denied, the newest first. To " +
			"get the next page, send the value of the field `next` as the parameter `after`.",
		action: access.ReadJournal, answer: access.JournalPage{},
		params: []*huma.Param{
			campaignParam("Only actions on this campaign."),
			textParam("who", "Only actions of this actor, such as key:ID or cli:USER@HOST."),
			timeParam("since", "Only actions at or after this time."),
			param("after", "query", "The field `next` of the previous page.",
				&huma.Schema{Type: huma.TypeString, Pattern: ops.JournalPlace}),
			limitParam(),
		},
		do: func(ctx context.Context, c *call) (any, error) {
			q := c.fields
			ask := access.JournalQuery{Campaign: q.campaign("campaign"), Who: q.text("who"), Since: q.time("since"),
				After: q.text("after"), Limit: q.limit()}
			if err := q.done(); err != nil {
				return nil, err
			}
			return c.ops().ListJournal(ctx, ask)
		},
	}}
}
