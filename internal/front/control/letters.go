package control

import (
	"context"
	"math"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// lettersAnswer is the result of a requeue or drop.
type lettersAnswer struct {
	*model.LetterReport
	// More is true if the time was over before all letters were decided.
	More bool `json:"more" doc:"True with status 202: some letters are not decided yet. Send the request again, with the value of 'next' as 'after'."`
}

func letterOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/dead-letters", id: "list-dead-letters", summary: "List dead letters",
			description: "Lists the letters by sink and shard, within each shard the oldest first. To get the next page, " +
				"send the value of the field `next` as the parameter `after`.",
			action: access.ReadLetters, answer: deliveries.LetterPage{}, codes: []string{"unknown_sink"},
			params: []*huma.Param{
				textParam("sink", "Only letters of this sink, or of several sinks separated by commas."), campaignParam("Only letters of this campaign."),
				param("class", "query", "Only letters of this class.", &huma.Schema{Type: huma.TypeString, Enum: classes()}),
				userParam("Only letters of this user."), textParam("reason", "Only letters whose reason contains this text."),
				timeParam("from", "Only letters that became dead letters at or after this time."),
				timeParam("to", "Only letters that became dead letters before this time."),
				textParam("after", "The field `next` of the previous page."), limitParam(),
			},
			do: listLetters,
		},
		{
			method: http.MethodGet, path: "/v1/dead-letters/{sink}/{shard}/{entry}", id: "show-dead-letter",
			summary: "Show a dead letter", description: "The letter's id is the path after /v1/dead-letters/. The answer has " +
				"the whole stream entry.",
			action: access.ReadLetters, answer: model.Letter{}, codes: []string{"unknown_letter"},
			params: []*huma.Param{
				sinkParam("Name of the sink."),
				param("shard", "path", "The shard's number.", &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9]{1,4}$"}),
				param("entry", "path", "Id of the letter in the stream of letters.",
					&huma.Schema{Type: huma.TypeString, Pattern: "^[0-9]{1,19}-[0-9]{1,19}$"}),
			},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				return c.ops().ShowLetter(ctx, c.r.PathValue("sink")+"/"+c.r.PathValue("shard")+"/"+c.r.PathValue("entry"))
			}),
		},
		letterChange("requeue", "Deliver dead letters to their sinks",
			"If a sink refuses a letter again, the letter remains a dead letter. The field `failures` lists it.",
			access.RequeueLetters,
			func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error) {
				return o.RequeueLetters(ctx, ops.Requeue{Letters: in})
			}),
		letterChange("drop", "Decide not to deliver dead letters",
			"The letters leave the list permanently. Redis stores them with the decision.", access.DropLetters,
			func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error) {
				return o.DropLetters(ctx, in)
			}),
	}
}

func classes() (all []any) {
	for _, c := range model.LetterClasses() {
		all = append(all, c)
	}
	return all
}

func letterFilter(f *fields) model.LetterFilter {
	return model.LetterFilter{Sink: f.text("sink"), Campaign: f.text("campaign"), Class: f.text("class"), User: f.text("user"),
		Reason: f.text("reason"), From: f.time("from"), To: f.time("to")}
}

func listLetters(ctx context.Context, c *call) (any, error) {
	in := ops.LetterList{LetterFilter: letterFilter(c.fields), After: c.fields.text("after"), Limit: c.fields.limit()}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	return c.ops().ListLetters(ctx, in)
}

// letterChange returns the operation requeue or drop.
func letterChange(name, summary, description string, action access.Action,
	do func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error)) operation {
	return operation{
		method: http.MethodPost, path: "/v1/dead-letters/" + name, id: name + "-dead-letters", summary: summary,
		description: description + " Select the letters by the field `letter`, by filters, or by `all`. First send a dry " +
			"run. Then send the decision, with the dry run's `matched` as the field `expect`.",
		action: action, body: lettersBody{}, answer: lettersAnswer{}, accepted: lettersAnswer{},
		codes: []string{"unknown_letter", "unknown_sink", "unknown_campaign"},
		do: func(ctx context.Context, c *call) (any, error) {
			f := c.fields
			in := ops.Letters{Letter: f.long("letter"), LetterFilter: letterFilter(f), All: f.flag("all"),
				After: f.text("after"), Why: f.text("why"), DryRun: f.flag("dry_run")}
			if f.has("expect") {
				n := f.number("expect", 0, math.MaxInt32)
				in.Expect = &n
			}
			if err := f.done(); err != nil {
				return nil, err
			}
			working, cancel := context.WithTimeout(ctx, c.cfg.Patience)
			defer cancel()
			report, err := do(working, c.ops(), in)
			if report != nil && err != nil && working.Err() != nil && ctx.Err() == nil {
				return later{lettersAnswer{report, true}}, nil
			}
			return lettersAnswer{LetterReport: report}, err
		},
	}
}
