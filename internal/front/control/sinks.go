package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

func sinkOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/sinks", id: "list-sinks", summary: "Show the status of all sinks",
			description: "Returns for each sink and shard how many grants wait and how long the oldest has waited. It also " +
				"counts the parked entries and the dead letters, and lists each sink's workers. If a shard can't be read, the " +
				"field `unread` has the reason.",
			action: access.ReadSinks, answer: sinksAnswer{},
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.ops().ListSinks(ctx) }),
		},
		sinkChange("pause", "Stop the deliveries to a sink until it is resumed",
			"All workers stop their deliveries within a second. The grants wait without using up an attempt.", access.PauseSink,
			ops.Operations.PauseSink),
		sinkChange("resume", "Resume a paused sink", "All workers continue their deliveries within a second.", access.ResumeSink,
			ops.Operations.ResumeSink),
		{
			method: http.MethodPost, path: "/v1/sinks/{sink}/limit", id: "limit-sink",
			summary: "Limit the grants per second that all workers together deliver to a sink",
			description: "The limit overrides the workers' configuration until a request with `by_knob` as true removes it. " +
				"Workers apply a change within about two seconds.",
			action: access.LimitSink, body: limitBody{}, answer: deliveries.SinkChange{}, params: []*huma.Param{sinkParam(sinkOrGroup)},
			codes: []string{"unknown_sink"}, withoutLedger: true, do: limitSink,
		},
	}
}

func limitSink(ctx context.Context, c *call) (any, error) {
	f := c.fields
	in := ops.SinkLimit{Sink: c.r.PathValue("sink"), ByKnob: f.flag("by_knob"), Why: f.text("why")}
	if f.has("grants_per_second") {
		rate := int(f.number("grants_per_second", 0, deliveries.MaxRate))
		in.GrantsPerSecond = &rate
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	return c.ops().LimitSink(ctx, in)
}

// sinkChange returns the operation pause or resume of a sink. It works without the ledger.
func sinkChange(name, summary, description string, action access.Action,
	do func(o ops.Operations, ctx context.Context, in ops.SinkPause) (deliveries.SinkChange, error)) operation {
	return operation{
		method: http.MethodPost, path: "/v1/sinks/{sink}/" + name, id: name + "-sink", summary: summary,
		description: description + " The change works while the ledger is down.", action: action, body: sinkBody{},
		answer: deliveries.SinkChange{}, params: []*huma.Param{sinkParam(sinkOrGroup)}, codes: []string{"unknown_sink"}, withoutLedger: true,
		do: func(ctx context.Context, c *call) (any, error) {
			in := ops.SinkPause{Sink: c.r.PathValue("sink"), Why: c.fields.text("why"), Campaign: c.fields.text("campaign")}
			if err := c.fields.done(); err != nil {
				return nil, err
			}
			return do(c.ops(), ctx, in)
		},
	}
}

const sinkOrGroup = "Name of the sink, or of the consumer group of a program of your own."

func sinkParam(doc string) *huma.Param {
	return param("sink", "path", doc, &huma.Schema{Type: huma.TypeString, Pattern: "^[a-z][a-z0-9_-]{0,63}$"})
}
