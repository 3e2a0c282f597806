package control

import (
	"context"
	"net/http"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

func journalOperations() []operation {
	return []operation{{
		method: http.MethodGet, path: "/v1/journal", id: "journal", summary: "Who did what",
		description: "Lists the actions of commands and of callers over HTTP, and the actions that callers were denied, the " +
			"newest first. For the next page give next as after.",
		action: access.ReadJournal, answer: access.JournalPage{},
		params: []*huma.Param{
			campaignParam("Only what concerns this campaign."),
			textParam("who", "Only what this one did, as key:ID or cli:USER@HOST."),
			param("since", "query", "Only what was done at or after this time.",
				&huma.Schema{Type: huma.TypeString, Format: "date-time"}),
			param("after", "query", "The next of the page before.",
				&huma.Schema{Type: huma.TypeString, Pattern: journalPlace.String()}),
			limitParam(),
		},
		do: func(ctx context.Context, c *call) (any, error) {
			q := c.fields
			ask := access.JournalQuery{Campaign: q.campaign("campaign"), Who: q.text("who"), Since: q.time("since"),
				After: q.text("after"), Limit: q.limit()}
			if ask.After != "" && !journalPlace.MatchString(ask.After) {
				q.fail("after is the next of the page before")
			}
			if err := q.done(); err != nil {
				return nil, err
			}
			return c.app.Journal(ctx, ask)
		},
	}}
}

// journalPlace is where a page of the journal begins.
var journalPlace = regexp.MustCompile("^[0-9]{1,15}-[A-Z0-9]{1,64}$")
