package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var sinkScript = newDrainScript("sink", "control").with(unguarded) // also runs on a frozen shard

// SinkControl has the decisions of operators about a sink on one shard. Its zero value means that there are none.
type SinkControl struct {
	// Paused means that no worker delivers a grant to the sink.
	Paused bool
	// Decision and At say who paused or resumed the sink last, why and when.
	stream.Decision
	At time.Time
	// Rate limits the grants that all workers together deliver in a second; 0 means no limit. If it is nil, each
	// worker uses its own setting.
	Rate *int
	// Limited and LimitAt say who changed Rate last, why and when.
	Limited stream.Decision
	LimitAt time.Time
	// Campaigns counts the decisions about single campaigns, see Group.PausedCampaigns. A reader compares it to notice
	// new ones.
	Campaigns int64
}

// Pause pauses a sink on the shard for all workers. It reports whether that changed anything, and returns the
// sink's state. If the sink is already paused, the first decision stays.
func (g Group) Pause(ctx context.Context, by stream.Decision) (bool, SinkControl, error) {
	return g.shard.pauseSink(ctx, "pause", g.name, "", by)
}

// Resume lets a paused sink continue. Its results are like PauseSink's.
func (g Group) Resume(ctx context.Context, by stream.Decision) (bool, SinkControl, error) {
	return g.shard.pauseSink(ctx, "resume", g.name, "", by)
}

// PauseCampaign pauses one campaign for a sink on the shard. Workers hold back its grants, and deliver the grants
// of other campaigns.
func (g Group) PauseCampaign(ctx context.Context, campaign string, by stream.Decision) (bool, SinkControl,
	error) {
	return g.shard.pauseSink(ctx, "pause", g.name, campaign, by)
}

// ResumeCampaign ends the pause of a campaign for a sink.
func (g Group) ResumeCampaign(ctx context.Context, campaign string, by stream.Decision) (bool, SinkControl,
	error) {
	return g.shard.pauseSink(ctx, "resume", g.name, campaign, by)
}

func (k *Shard) pauseSink(ctx context.Context, what, sink, campaign string, by stream.Decision) (bool, SinkControl,
	error) {
	about := stream.Control{Kind: stream.ControlSink, Sink: sink, Campaign: campaign}
	if campaign != "" {
		about.Kind = stream.ControlSinkCampaign
	}
	return k.controlSink(ctx, sink, what, by.By, by.Why, "", campaign, about.Name())
}

// Limit sets the rate limit of a sink over all workers, in grants a second. 0 means no limit, and nil means each
// worker's own setting. Its results are like PauseSink's.
func (g Group) Limit(ctx context.Context, rate *int, by stream.Decision) (bool, SinkControl, error) {
	text := ""
	if rate != nil {
		text = strconv.Itoa(*rate)
	}
	about := stream.Control{Kind: stream.ControlRate, Sink: g.name}
	return g.shard.controlSink(ctx, g.name, "limit", by.By, by.Why, text, "", about.Name())
}

func (k *Shard) controlSink(ctx context.Context, sink string, args ...any) (changed bool, now SinkControl, err error) {
	reply, err := k.run(ctx, sinkScript, []string{k.Keys.Sink(sink), k.Keys.Controls(), k.Keys.SinkCampaigns(sink)}, args)
	if err != nil {
		return false, now, err
	}
	r := replyReader{rest: reply}
	changed = r.string() == "changed"
	fields := r.rest
	r.rest = nil
	if now, err = k.parseControl(sink, pairs(fields)); err != nil {
		return false, now, err
	}
	return changed, now, r.done(sinkScript)
}

// Control returns the decisions of operators about a sink on the shard.
func (g Group) Control(ctx context.Context) (SinkControl, error) {
	return g.shard.readControl(g.name, g.shard.rdb.HGetAll(ctx, g.shard.Keys.Sink(g.name)))
}

// SinkControls reads the decisions of operators about a sink on all shards, in one pipeline. It returns decisions or
// an error for each shard.
func (s *Store) SinkControls(ctx context.Context, sink string) ([]SinkControl, []error) {
	pipe := s.rdb.Pipeline()
	answers := make([]*redis.MapStringStringCmd, s.Len())
	for i := range answers {
		answers[i] = pipe.HGetAll(ctx, s.shards[i].Keys.Sink(sink))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all, errs := make([]SinkControl, len(answers)), make([]error, len(answers))
	for i, answer := range answers {
		all[i], errs[i] = s.Shard(i).readControl(sink, answer)
	}
	return all, errs
}

func (k *Shard) readControl(sink string, answer *redis.MapStringStringCmd) (SinkControl, error) {
	fields, err := answer.Result()
	if err != nil {
		return SinkControl{}, fmt.Errorf("read whether sink %s is paused: %w", sink, Classify(err))
	}
	return k.parseControl(sink, fields)
}

func (k *Shard) parseControl(sink string, fields map[string]string) (c SinkControl, err error) {
	c = SinkControl{Paused: fields["paused"] == "1", Decision: stream.Decision{By: fields["by"], Why: fields["why"]},
		Limited: stream.Decision{By: fields["limit_by"], Why: fields["limit_why"]}}
	number := func(field string) (n int64) {
		if fields[field] == "" || err != nil {
			return 0
		}
		n, wrong := strconv.ParseInt(fields[field], 10, 64)
		if wrong != nil || n < 0 {
			err = hongbao.Errorf(hongbao.ClassBroken, "%s, field %s is %.40q: someone changed it by hand", k.Keys.Sink(sink),
				field, fields[field])
		}
		return n
	}
	for field, into := range map[string]*time.Time{"at": &c.At, "limit_at": &c.LimitAt} {
		if ms := number(field); ms > 0 {
			*into = time.UnixMilli(ms).UTC()
		}
	}
	c.Campaigns = number("campaigns")
	for _, rev := range []string{"rev", "limit_rev"} { // the scripts would take another text for no rev
		number(rev)
	}
	if fields["rate"] != "" {
		rate := int(number("rate"))
		c.Rate = &rate
	}
	return c, err
}

// CampaignPause is the last decision about a campaign for a sink.
type CampaignPause struct {
	Campaign string
	Paused   bool
	By, Why  string
	At       time.Time
}

// PausedCampaigns returns the decisions about single campaigns of a sink, sorted by campaign.
func (g Group) PausedCampaigns(ctx context.Context) ([]CampaignPause, error) {
	fields, err := g.shard.rdb.HGetAll(ctx, g.shard.Keys.SinkCampaigns(g.name)).Result()
	if err != nil {
		return nil, fmt.Errorf("read which campaigns are paused for sink %s: %w", g.name, Classify(err))
	}
	var out []CampaignPause
	for field, value := range fields {
		campaign, ok := strings.CutSuffix(field, ":paused")
		if !ok {
			continue
		}
		c := CampaignPause{Campaign: campaign, Paused: value == "1", By: fields[campaign+":by"], Why: fields[campaign+":why"]}
		if ms, err := strconv.ParseInt(fields[campaign+":at"], 10, 64); err == nil && ms > 0 {
			c.At = time.UnixMilli(ms).UTC()
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b CampaignPause) int { return strings.Compare(a.Campaign, b.Campaign) })
	return out, nil
}

// pairs makes a map from a list of alternating fields and values.
func pairs(flat []string) map[string]string {
	out := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		out[flat[i]] = flat[i+1]
	}
	return out
}
