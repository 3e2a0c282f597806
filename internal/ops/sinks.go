package ops

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// ListSinks returns the status of each sink, the campaigns whose refund is late, and the events that sinks do not owe.
func (l *Local) ListSinks(ctx context.Context) (*deliveries.Status, error) {
	s, err := deliveries.Of(l.App).Status(ctx)
	if err == nil {
		deliveries.Of(l.App).AddUnrefunded(ctx, s)
		deliveries.Of(l.App).AddNotOwed(ctx, s)
	}
	return s, err
}

// SinkPause is the input of PauseSink and ResumeSink.
type SinkPause struct {
	Sink string `json:"-"`
	By   string `json:"-"` // who decides; ignored if the caller has an API key
	Why  string `json:"why" doc:"The reason for the change. It is stored with the id of the caller's API key, until the next change."`
	// Campaign is empty to pause or resume the whole sink.
	Campaign string `json:"campaign,omitempty" doc:"Id of a campaign. Then the change affects only the campaign's grants. Absent: the change affects the whole sink."`
}

// Check returns an error if the input is invalid.
func (in *SinkPause) Check() error { return cmp.Or(checkWhy(in.Why), checkPick(in.Campaign, "")) }

// PauseSink stops all deliveries to a sink.
func (l *Local) PauseSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error) {
	return l.turnSink(ctx, &in, deliveries.Of(l.App).PauseSink, deliveries.Of(l.App).PauseSinkCampaign)
}

// ResumeSink resumes a paused sink.
func (l *Local) ResumeSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error) {
	return l.turnSink(ctx, &in, deliveries.Of(l.App).ResumeSink, deliveries.Of(l.App).ResumeSinkCampaign)
}

func (l *Local) turnSink(ctx context.Context, in *SinkPause,
	whole func(ctx context.Context, sink string, by stream.Decision) (deliveries.SinkChange, error),
	one func(ctx context.Context, sink, campaign string, by stream.Decision) (deliveries.SinkChange, error),
) (deliveries.SinkChange, error) {
	if err := cmp.Or(in.Check(), l.checkGroup(ctx, in.Sink)); err != nil {
		return deliveries.SinkChange{}, err
	}
	by := stream.Decision{By: l.by(in.By), Why: in.Why}
	if in.Campaign != "" {
		return one(ctx, in.Sink, in.Campaign, by)
	}
	return whole(ctx, in.Sink, by)
}

// checkGroup returns an error unless the deployment has the sink, or another program has a consumer group of that name.
func (l *Local) checkGroup(ctx context.Context, sink string) error {
	found, err := deliveries.Of(l.App).HasGroup(ctx, sink)
	if err != nil || found {
		return err
	}
	return &InputError{Field: "sink", Code: "unknown_sink", Text: fmt.Sprintf("is unknown: deployment.sinks has %s, and "+
		"no shard has a consumer group of that name", strings.Join(l.App.Config.Deployment.Sinks, ", "))}
}

// SinkLimit is the input of LimitSink.
type SinkLimit struct {
	Sink string `json:"-"`
	By   string `json:"-"` // who decides; ignored if the caller has an API key
	// GrantsPerSecond is nil if ByKnob is set.
	GrantsPerSecond *int   `json:"grants_per_second,omitempty" minimum:"0" maximum:"1000000000" doc:"The most grants per second that all workers together deliver; 0 for no limit. Send either this field or 'by_knob'."`
	ByKnob          bool   `json:"by_knob,omitempty" doc:"True to remove the limit. Each worker then uses the rate in its configuration again."`
	Why             string `json:"why" doc:"The reason for the change. It is stored with the limit and the id of the caller's API key."`
}

// Check returns an error unless the input has exactly one limit.
func (in *SinkLimit) Check() error {
	rate := in.GrantsPerSecond
	switch {
	case (rate != nil) == in.ByKnob:
		return &InputError{Text: "give either grants_per_second or by_knob"}
	case rate != nil && (*rate < 0 || *rate > deliveries.MaxRate):
		return &InputError{Field: "grants_per_second", Text: fmt.Sprintf("is from 0 to %d", deliveries.MaxRate)}
	}
	return checkWhy(in.Why)
}

// LimitSink sets the maximum number of grants per second that all workers together deliver to a sink.
func (l *Local) LimitSink(ctx context.Context, in SinkLimit) (deliveries.SinkChange, error) {
	if err := cmp.Or(in.Check(), l.checkGroup(ctx, in.Sink)); err != nil {
		return deliveries.SinkChange{}, err
	}
	return deliveries.Of(l.App).LimitSink(ctx, in.Sink, in.GrantsPerSecond, stream.Decision{By: l.by(in.By), Why: in.Why})
}

// ListSinks implements Operations.
func (r *Remote) ListSinks(ctx context.Context) (*deliveries.Status, error) {
	status := &deliveries.Status{}
	return status, r.get(ctx, "/v1/sinks", nil, status)
}

// PauseSink implements Operations.
func (r *Remote) PauseSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error) {
	return r.turnSink(ctx, "pause", in)
}

// ResumeSink implements Operations.
func (r *Remote) ResumeSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error) {
	return r.turnSink(ctx, "resume", in)
}

func (r *Remote) turnSink(ctx context.Context, what string, in SinkPause) (out deliveries.SinkChange, err error) {
	if err := cmp.Or(in.Check(), checkSinkName(in.Sink)); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/sinks/"+in.Sink+"/"+what, &in, &out)
	return out, err
}

// LimitSink implements Operations.
func (r *Remote) LimitSink(ctx context.Context, in SinkLimit) (out deliveries.SinkChange, err error) {
	if err := cmp.Or(in.Check(), checkSinkName(in.Sink)); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/sinks/"+in.Sink+"/limit", &in, &out)
	return out, err
}

// checkSinkName returns an error if a name can't be part of a path.
func checkSinkName(sink string) error {
	if hongbao.CheckCampaignID(sink) != nil { // names of sinks follow the same rules as ids of campaigns
		return &InputError{Field: "sink", Code: "unknown_sink", Text: "is unknown: `hongbao sink list` lists the sinks"}
	}
	return nil
}
