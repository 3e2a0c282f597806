package deliveries

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// SinkPause is the last pause or resume of a sink.
type SinkPause struct {
	// Paused means that workers deliver nothing to the sink on at least one shard.
	Paused bool `json:"paused" doc:"True if workers deliver nothing to the sink on at least one shard."`
	// PausedShards is the number of paused shards. If it is neither 0 nor all, the command failed midway, and a repeat
	// completes it.
	PausedShards int `json:"paused_shards" doc:"Number of shards on which the sink is paused. If it is neither 0 nor all shards, repeat the pause or resume."`
	// By, Why and At are those of the last pause or resume; empty if there was none.
	By  string    `json:"by,omitempty" doc:"Person or API key that last paused or resumed the sink. Absent if no one did."`
	Why string    `json:"why,omitempty" doc:"The reason for the last pause or resume. Absent if there was none."`
	At  time.Time `json:"at,omitzero" doc:"Time of the last pause or resume. Absent if there was none."`
}

// PausedCampaign is a campaign that is paused for one sink: its grants wait for that sink.
type PausedCampaign struct {
	Campaign string    `json:"campaign" doc:"The campaign's id."`
	By       string    `json:"by" doc:"Person or API key that paused the campaign. 'hongbao' if a worker did, because too many grants became dead letters."`
	Why      string    `json:"why" doc:"The reason for the pause."`
	At       time.Time `json:"at" doc:"Time of the pause."`
}

// SinkLimit is a sink's rate limit that a person has set. It applies to all workers together.
type SinkLimit struct {
	// GrantsPerSecond is 0 for no limit. If it is nil, each worker uses its knob (sinks.SINK_grants_per_second).
	GrantsPerSecond *int      `json:"grants_per_second" doc:"The most grants per second that all workers together deliver; 0 for no limit. Null if each worker uses its configuration."`
	By              string    `json:"by,omitempty" doc:"Person or API key that last changed the limit. Absent if no one did."`
	Why             string    `json:"why,omitempty" doc:"The reason for the last change of the limit. Absent if there was none."`
	At              time.Time `json:"at,omitzero" doc:"Time of the last change of the limit. Absent if there was none."`
}

// add merges the limit on one more shard. The latest change takes precedence.
func (l *SinkLimit) add(c *store.SinkControl) {
	if c.LimitAt.After(l.At) {
		*l = SinkLimit{c.Rate, c.Limited.By, c.Limited.Why, c.LimitAt}
	}
}

// add merges the pause on one more shard. A paused shard takes precedence over a shard that is not paused.
func (p *SinkPause) add(c *store.SinkControl) {
	if c.Paused {
		p.PausedShards++
	}
	if c.Paused && !p.Paused || c.Paused == p.Paused && c.At.After(p.At) {
		p.Paused, p.By, p.Why, p.At = c.Paused, c.By, c.Why, c.At
	}
}

// SinkChange is the result of a pause or a resume.
type SinkChange struct {
	Sink string `json:"sink" doc:"Name of the sink."`
	// Campaign is "" if the change is about the whole sink.
	Campaign string `json:"campaign,omitempty" doc:"Id of the campaign whose grants the change affects. Absent if it affects the whole sink."`
	// Changed is false if the sink was already in this state.
	Changed bool `json:"changed" doc:"False if the sink was in this state before the request."`
	// Kept is the earlier pause of the campaign, if a repeated pause changed nothing.
	Kept  *PausedCampaign `json:"kept,omitempty" doc:"The earlier pause of the campaign for the sink, if the request repeats it. That pause stays."`
	Pause SinkPause       `json:"pause" doc:"Whether the whole sink is paused after the change."`
	Limit SinkLimit       `json:"limit" doc:"The rate limit of the sink after the change."`
}

// PauseSink stops the delivery of grants to a sink by all workers. Each worker stops within a second, after completing
// its calls of the sink. The entries wait without using up an attempt. Redis keeps the pause until the sink is resumed.
// PauseSink is idempotent: the name and reason of the first call stay.
func (a Deliveries) PauseSink(ctx context.Context, sink string, by stream.Decision) (SinkChange, error) {
	return a.controlSink(ctx, aboutSink(ctx, access.PauseSink, sink), by,
		func(k *store.Shard) (bool, store.SinkControl, error) { return k.Group(sink).Pause(ctx, by) })
}

// ResumeSink resumes the delivery to a paused sink. It is idempotent.
func (a Deliveries) ResumeSink(ctx context.Context, sink string, by stream.Decision) (SinkChange, error) {
	return a.controlSink(ctx, aboutSink(ctx, access.ResumeSink, sink), by,
		func(k *store.Shard) (bool, store.SinkControl, error) { return k.Group(sink).Resume(ctx, by) })
}

// PauseSinkCampaign pauses one campaign for a sink. Its grants wait without using up an attempt. It is idempotent.
func (a Deliveries) PauseSinkCampaign(ctx context.Context, sink, campaign string, by stream.Decision) (SinkChange, error) {
	return a.controlCampaign(ctx, access.PauseSink, sink, campaign, by, store.Group.PauseCampaign)
}

// ResumeSinkCampaign resumes a campaign that is paused for a sink. It is idempotent.
func (a Deliveries) ResumeSinkCampaign(ctx context.Context, sink, campaign string, by stream.Decision) (SinkChange, error) {
	return a.controlCampaign(ctx, access.ResumeSink, sink, campaign, by, store.Group.ResumeCampaign)
}

func (a Deliveries) controlCampaign(ctx context.Context, action access.Action, sink, campaign string, by stream.Decision,
	do func(g store.Group, ctx context.Context, campaign string, by stream.Decision) (bool, store.SinkControl,
		error)) (SinkChange, error) {
	if err := hongbao.CheckCampaignID(campaign); err != nil {
		return SinkChange{Sink: sink}, app.Usage("campaign %.80q: %s", campaign, err)
	}
	if err := a.checkSinkCampaign(ctx, sink, campaign); err != nil {
		return SinkChange{Sink: sink}, err
	}
	e := aboutSink(ctx, action, sink)
	e.Campaign = campaign
	out, err := a.controlSink(ctx, e, by, func(k *store.Shard) (bool, store.SinkControl, error) {
		return do(k.Group(sink), ctx, campaign, by)
	})
	out.Campaign = campaign
	if err == nil && !out.Changed {
		out.Kept = a.campaignPause(ctx, sink, campaign)
	}
	return out, err
}

// campaignPause returns the latest pause of a campaign for a sink; nil if no shard that answers has the campaign paused.
func (a Deliveries) campaignPause(ctx context.Context, sink, campaign string) (last *PausedCampaign) {
	for _, k := range a.app.Store().Shards() {
		list, _ := k.Group(sink).PausedCampaigns(ctx) // a shard that does not answer only hides who paused it there
		for _, c := range list {
			if c.Campaign == campaign && c.Paused && (last == nil || c.At.After(last.At)) {
				last = &PausedCampaign{c.Campaign, c.By, c.Why, c.At.UTC()}
			}
		}
	}
	return last
}

// checkSinkCampaign returns an error if the campaign's id is probably mistyped: Redis has no such campaign, and no one
// has ever paused it for the sink. If a shard can't be read, it returns no error.
func (a Deliveries) checkSinkCampaign(ctx context.Context, sink, campaign string) error {
	known := make([]bool, a.app.Store().Len())
	store.Each(len(known), store.AllAtOnce, func(i int) error {
		list, err := a.app.Store().Shard(i).Group(sink).PausedCampaigns(ctx)
		known[i] = err != nil || slices.ContainsFunc(list, func(c store.CampaignPause) bool { return c.Campaign == campaign })
		return err
	})
	if slices.Contains(known, true) {
		return nil
	}
	state, _, err := a.app.Store().Home(campaign).CampaignState(ctx)
	if err != nil || state != "" {
		return nil //nolint:nilerr // the pause itself reports a shard that can't be reached
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "sink %s: campaign %s is not in Redis and was never paused for the sink: "+
		"check the id; `hongbao sink list` shows the paused campaigns", sink, campaign)
}

// MaxRate is the highest rate limit of a sink, in grants per second.
const MaxRate = 1_000_000_000

// LimitSink sets how many grants per second all workers together may deliver to a sink. 0 means no limit; with nil each
// worker uses its knob. Workers apply the limit within a second. LimitSink is idempotent.
func (a Deliveries) LimitSink(ctx context.Context, sink string, rate *int, by stream.Decision) (SinkChange, error) {
	if rate != nil && (*rate < 0 || *rate > MaxRate) {
		return SinkChange{Sink: sink}, app.Usage("%d grants a second: want 0 to %d", *rate, MaxRate)
	}
	e := aboutSink(ctx, access.LimitSink, sink)
	e.Details["rate"] = rate
	return a.controlSink(ctx, e, by, func(k *store.Shard) (bool, store.SinkControl, error) {
		return k.Group(sink).Limit(ctx, rate, by)
	})
}

func aboutSink(ctx context.Context, action access.Action, sink string) access.Entry {
	e := app.About(ctx, action, "")
	e.Sink, e.Details = sink, map[string]any{}
	return e
}

func (a Deliveries) controlSink(ctx context.Context, e access.Entry, by stream.Decision,
	do func(k *store.Shard) (changed bool, now store.SinkControl, err error)) (out SinkChange, err error) {
	e.Details["by"], e.Details["why"] = by.By, by.Why
	err = a.app.Recorded(ctx, e, func(_ context.Context, e *access.Entry) (err error) {
		out, err = a.eachShard(e.Sink, by, do)
		e.Details["changed"] = out.Changed
		return err
	})
	return out, err
}

// HasGroup reports whether the deployment has the sink, or any shard a consumer group of that name, which is then of
// another program on package consumer. Pauses and limits work for both.
func (a Deliveries) HasGroup(ctx context.Context, sink string) (bool, error) {
	if a.app.Has(sink) {
		return true, nil
	}
	return a.app.Store().HasGroup(ctx, sink)
}

// eachShard runs do on all shards concurrently, and merges the results. Its error names the shards that failed.
func (a Deliveries) eachShard(sink string, by stream.Decision,
	do func(k *store.Shard) (changed bool, now store.SinkControl, err error)) (SinkChange, error) {
	out := SinkChange{Sink: sink}
	if err := by.Check(); err != nil {
		return out, app.Usage("a change of a sink says who decides and why: %w", err)
	}
	changed, now := make([]bool, a.app.Store().Len()), make([]store.SinkControl, a.app.Store().Len())
	var failed []error
	for i, err := range store.Each(a.app.Store().Len(), store.AllAtOnce, func(i int) (err error) {
		changed[i], now[i], err = do(a.app.Store().Shard(i))
		return err
	}) {
		if err != nil {
			failed = append(failed, fmt.Errorf("shard %d: %w", i, err))
			continue
		}
		out.Changed = out.Changed || changed[i]
		out.Pause.add(&now[i])
		out.Limit.add(&now[i])
	}
	if len(failed) > 0 {
		return out, fmt.Errorf("sink %s: %d of %d shards were not reached, try again: %w", sink, len(failed),
			a.app.Store().Len(), errors.Join(failed...))
	}
	return out, nil
}
