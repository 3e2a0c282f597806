package control

import (
	"context"
	"math"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// decideBody is a decision about a grant in quarantine.
type decideBody struct {
	Decision string `json:"decision" enum:"pay,void" doc:"pay: from the reserve; void: nobody gets it."`
	Why      string `json:"why" doc:"Kept with the decision, as is the caller's key."`
}

func quarantineOperations() []operation {
	number := param("number", "path", "The number in the quarantine.",
		&huma.Schema{Type: huma.TypeString, Pattern: "^[1-9][0-9]{0,17}$"})
	return []operation{
		{
			method: http.MethodGet, path: "/v1/quarantine", id: "list-quarantine", summary: "List grants in quarantine",
			description: "Lists the grants that wait for a decision, the oldest first. For the next page give next as after; " +
				"on the last page next is 0.",
			action: access.ReadQuarantine, answer: app.QuarantinePage{},
			params: []*huma.Param{
				flagParam("all", "Those that were decided, too."),
				numberParam("after", "The next of the page before.", 0, 1<<53), limitParam(),
			},
			do: func(ctx context.Context, c *call) (any, error) {
				q := app.QuarantineList{After: c.fields.number("after", 0, 1<<53), Limit: c.fields.limit(),
					All: c.fields.flag("all"), Sees: c.sees()}
				if err := c.fields.done(); err != nil {
					return nil, err
				}
				return c.app.ListQuarantine(ctx, q)
			},
		},
		{
			method: http.MethodGet, path: "/v1/quarantine/{number}", id: "show-quarantine",
			summary: "One grant in quarantine", description: "Both sides of the contradiction.",
			action: access.ReadQuarantine, answer: app.Quarantined{}, params: []*huma.Param{number},
			codes: []string{"unknown_quarantine"},
			do:    plain(func(ctx context.Context, c *call) (any, error) { return c.quarantined(ctx) }),
		},
		{
			method: http.MethodPost, path: "/v1/quarantine/{number}/decide", id: "decide-quarantine",
			summary:     "Pay or void a grant in quarantine",
			description: "The same decision again moves nothing and gives the same answer.",
			action:      access.DecideQuarantine, body: decideBody{}, answer: app.Quarantined{},
			params: []*huma.Param{number}, codes: []string{"unknown_quarantine", "decided_otherwise", "not_payable"},
			do: decide, together: true,
		},
	}
}

// quarantined gives the grant of the path, if the caller may see it.
func (c *call) quarantined(ctx context.Context) (app.Quarantined, error) {
	gone := web.Refuse("unknown_quarantine", "list the quarantine to see those that there are")
	text := c.r.PathValue("number")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || id == math.MaxInt64 || strconv.FormatInt(id, 10) != text {
		return app.Quarantined{}, gone
	}
	q, err := c.app.Quarantined(ctx, id)
	if err == nil && !c.who.Sees(q.Campaign) {
		c.hidden(q.Campaign)
		err = gone
	}
	return q, err
}

func decide(ctx context.Context, c *call) (any, error) {
	what, why := c.fields.one("decision", "pay", "void"), c.fields.why()
	if what == "" {
		c.fields.fail("decision is pay or void")
	}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	q, err := c.quarantined(ctx)
	if err != nil {
		return nil, err
	}
	return c.app.Decide(ctx, ledger.Resolution{ID: q.ID, Pay: what == "pay",
		Decision: stream.Decision{By: c.actor.Who, Why: why}})
}
