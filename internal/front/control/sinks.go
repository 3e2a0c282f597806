package control

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// sinksAnswer is app.Status.
type sinksAnswer struct {
	Sinks []app.SinkStatus `json:"sinks" nullable:"false" doc:"In the order of deployment.sinks."`
}

// sinkBody is the body of a pause and of a resume.
type sinkBody struct {
	Why string `json:"why" doc:"Kept until the sink goes on, as is the caller's key."`
	// Campaign is "" for the whole sink.
	Campaign string `json:"campaign,omitempty" doc:"One campaign only: the sink's other grants go on. Absent: the whole sink."`
}

// acknowledgeBody is the body of an acknowledgement.
type acknowledgeBody struct {
	Kind     string    `json:"kind" doc:"The kind of the difference, such as duplicate_in_topic."`
	Where    string    `json:"where" doc:"The place that the audit named."`
	Campaign string    `json:"campaign,omitempty" doc:"The campaign, if the difference names one."`
	Packet   int64     `json:"packet,omitempty" minimum:"1" doc:"The packet, if the difference names one."`
	Event    string    `json:"event,omitempty" doc:"Shard and seq, if the difference names them."`
	Detail   string    `json:"detail" doc:"What the audit said, word by word."`
	Until    time.Time `json:"until" doc:"When the audit counts it again: within the next 366 days."`
	Why      string    `json:"why" minLength:"1" maxLength:"1000" doc:"Kept with the acknowledgement."`
}

func acknowledge(ctx context.Context, c *call) (any, error) {
	d := app.Difference{
		Kind: app.DifferenceKind(c.fields.text("kind")), Where: c.fields.text("where"), Campaign: c.fields.text("campaign"),
		Packet: c.fields.number("packet", 1, math.MaxInt64), Event: c.fields.text("event"), Detail: c.fields.text("detail"),
	}
	until, why := c.fields.time("until"), c.fields.why()
	if until.IsZero() {
		c.fields.fail("until is required: a time within the next 366 days, as 2026-02-17T20:00:00Z")
	}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	return c.app.Acknowledge(ctx, &d, until, stream.Decision{By: c.actor.Who, Why: why})
}

func sinkOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/sinks", id: "list-sinks", summary: "How all sinks stand",
			description: "Tells of each sink, by shard, how many grants wait and since when, how many entries are parked and " +
				"letters dead, and which workers it has. A shard that can't be read is left out: unread names it, and says why.",
			action: access.ReadSinks, answer: sinksAnswer{},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				s, err := c.app.Status(ctx)
				if err != nil {
					return nil, err
				}
				return sinksAnswer{s.Sinks}, nil
			}),
		},
		{
			method: http.MethodGet, path: "/v1/audit", id: "last-audit", summary: "The verdict of the last whole audit",
			description: "`hongbao audit` leaves it, whoever runs it; none if there was no audit.",
			action:      access.ReadSinks, answer: app.LastAudit{},
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.app.LastAudit(ctx) }),
		},
		{
			method: http.MethodPost, path: "/v1/audit/acknowledgements", id: "acknowledge-difference",
			summary: "Acknowledge a known difference of the audit",
			description: "Copy kind to detail from a difference of `hongbao audit --json`. The audit shows the difference with " +
				"exactly these words as acknowledged, and does not count it, until the time: verdict, alarms and sealing ignore it. " +
				"The same difference again replaces the acknowledgement before. double_credit is refused.",
			action: access.AcknowledgeDifference, body: acknowledgeBody{},
			answer: ledger.Acknowledgement{}, together: true, do: acknowledge,
		},
		sinkChange("pause", "Hand a sink nothing until it is resumed",
			"All workers stop within a second. Grants wait and lose no attempt.", access.PauseSink, (*app.App).PauseSink,
			(*app.App).PauseSinkCampaign),
		sinkChange("resume", "Let a paused sink go on", "All workers go on within a second.", access.ResumeSink,
			(*app.App).ResumeSink, (*app.App).ResumeSinkCampaign),
		{
			method: http.MethodPost, path: "/v1/sinks/{sink}/limit", id: "limit-sink",
			summary:     "Bound how many grants a second all workers together hand to a sink",
			description: "It comes before the knob of the workers, until by_knob takes it back. Workers know it within a second.",
			action:      access.LimitSink, body: limitBody{}, answer: app.SinkChange{}, params: []*huma.Param{sinkParam()},
			codes: []string{"unknown_sink"}, alone: true, do: limitSink,
		},
	}
}

// limitBody is the body of a limit.
type limitBody struct {
	GrantsPerSecond int64  `json:"grants_per_second,omitempty" minimum:"0" maximum:"1000000000" doc:"0 for no bound; or give by_knob."`
	ByKnob          bool   `json:"by_knob,omitempty" doc:"Let each worker go by its knob again."`
	Why             string `json:"why" doc:"Kept with the limit, as is the caller's key."`
}

func limitSink(ctx context.Context, c *call) (any, error) {
	f := c.fields
	why, byKnob, rate := f.why(), f.flag("by_knob"), int(f.number("grants_per_second", 0, app.MaxRate))
	if _, has := f.o["grants_per_second"]; has == byKnob {
		f.fail("give grants_per_second or by_knob, one of the two")
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	sink := c.r.PathValue("sink")
	if err := c.checkSink(sink); err != nil {
		return nil, err
	}
	to := &rate
	if byKnob {
		to = nil
	}
	return c.app.LimitSink(ctx, sink, to, stream.Decision{By: c.actor.Who, Why: why})
}

// sinkChange is pause or resume. As of campaigns, it needs no ledger.
func sinkChange(name, summary, description string, action access.Action,
	do func(a *app.App, ctx context.Context, sink string, by stream.Decision) (app.SinkChange, error),
	doCampaign func(a *app.App, ctx context.Context, sink, campaign string, by stream.Decision) (app.SinkChange,
		error)) operation {
	return operation{
		method: http.MethodPost, path: "/v1/sinks/{sink}/" + name, id: name + "-sink", summary: summary,
		description: description + " It works while the ledger is away.", action: action, body: sinkBody{},
		answer: app.SinkChange{}, params: []*huma.Param{sinkParam()}, codes: []string{"unknown_sink"}, alone: true,
		do: func(ctx context.Context, c *call) (any, error) {
			by, campaign := stream.Decision{By: c.actor.Who, Why: c.fields.why()}, c.fields.text("campaign")
			if err := c.fields.done(); err != nil {
				return nil, err
			}
			sink := c.r.PathValue("sink")
			if err := c.checkSink(sink); err != nil {
				return nil, err
			}
			if campaign != "" {
				return doCampaign(c.app, ctx, sink, campaign, by)
			}
			return do(c.app, ctx, sink, by)
		},
	}
}

func sinkParam() *huma.Param {
	return param("sink", "path", "The sink.", &huma.Schema{Type: huma.TypeString, Pattern: "^[a-z][a-z0-9_-]{0,63}$"})
}
