package shards

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

var sinkScript = newDrainScript("sink").with(unguarded) // a sink is paused on a frozen shard too

// SinkControl is what people have told the workers of a sink, on one shard. Its zero is a sink that nobody touched.
type SinkControl struct {
	// Paused: no worker hands a grant to the sink.
	Paused bool
	// By, Why and At are those of the last pause or resume.
	By, Why string
	At      time.Time
	// Rate is how many grants a second all workers hand over at most, 0 for no bound; nil: each goes by its own setting.
	Rate *int
	// LimitBy, LimitWhy and LimitAt are those of the last change of Rate.
	LimitBy, LimitWhy string
	LimitAt           time.Time
}

// PauseSink pauses a sink on the shard for all workers. It tells whether that changed anything, and how the sink stands:
// a sink that was paused before keeps its first name and reason.
func (k *Shard) PauseSink(ctx context.Context, sink, by, why string) (changed bool, now SinkControl, err error) {
	return k.controlSink(ctx, sink, "pause", by, why)
}

// ResumeSink lets a paused sink go on. It answers as PauseSink does.
func (k *Shard) ResumeSink(ctx context.Context, sink, by, why string) (changed bool, now SinkControl, err error) {
	return k.controlSink(ctx, sink, "resume", by, why)
}

// LimitSink bounds the rate of a sink over all workers, in grants a second: 0 for no bound, nil for the setting of each
// worker. It answers as PauseSink does.
func (k *Shard) LimitSink(ctx context.Context, sink string, rate *int, by, why string) (changed bool, now SinkControl,
	err error) {
	text := ""
	if rate != nil {
		text = strconv.Itoa(*rate)
	}
	return k.controlSink(ctx, sink, "limit", by, why, text)
}

func (k *Shard) controlSink(ctx context.Context, sink string, args ...any) (changed bool, now SinkControl, err error) {
	reply, err := k.run(ctx, sinkScript, []string{k.Keys.Sink(sink)}, args)
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

// SinkControl reads what people have told the workers of a sink.
func (k *Shard) SinkControl(ctx context.Context, sink string) (SinkControl, error) {
	return k.readControl(sink, k.rdb.HGetAll(ctx, k.Keys.Sink(sink)))
}

// SinkControls asks all shards what people have told the workers of a sink, at once. There is an answer or an error for
// each.
func SinkControls(ctx context.Context, rdb redis.UniversalClient, layout *Layout, sink string) ([]SinkControl, []error) {
	pipe := rdb.Pipeline()
	answers := make([]*redis.MapStringStringCmd, layout.Len())
	for i := range answers {
		answers[i] = pipe.HGetAll(ctx, layout.Shard(i).Sink(sink))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all, errs := make([]SinkControl, len(answers)), make([]error, len(answers))
	for i, answer := range answers {
		all[i], errs[i] = Of(rdb, layout.Shard(i)).readControl(sink, answer)
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
	c = SinkControl{Paused: fields["paused"] == "1", By: fields["by"], Why: fields["why"], LimitBy: fields["limit_by"],
		LimitWhy: fields["limit_why"]}
	number := func(field string) (n int64) {
		if fields[field] == "" || err != nil {
			return 0
		}
		n, wrong := strconv.ParseInt(fields[field], 10, 64)
		if wrong != nil || n < 0 {
			err = hongbao.Errorf(hongbao.ClassBroken, "%s, field %s is %.40q: somebody changed it by hand", k.Keys.Sink(sink),
				field, fields[field])
		}
		return n
	}
	for field, into := range map[string]*time.Time{"at": &c.At, "limit_at": &c.LimitAt} {
		if ms := number(field); ms > 0 {
			*into = time.UnixMilli(ms)
		}
	}
	if fields["rate"] != "" {
		rate := int(number("rate"))
		c.Rate = &rate
	}
	return c, err
}

// pairs makes a map of fields and values in turn.
func pairs(flat []string) map[string]string {
	out := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		out[flat[i]] = flat[i+1]
	}
	return out
}
