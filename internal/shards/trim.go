package shards

import (
	"context"
	"time"
)

var trimScript = newDrainScript("trim")

// Trim is what trim.lua asks for.
type Trim struct {
	Retention time.Duration
	MaxEvents int64
	// Limit is how many entries one call deletes at most.
	Limit int
	// Groups are those that must exist; while one is missing nothing is deleted.
	Groups []string
}

// Trimmed is how a shard stands after a trim.
type Trimmed struct {
	// Seq is the shard's last event, Finished the last one up to which every declared group is finished.
	Seq, Finished int64
	// FirstKept is the first event of the first entry kept; 0 if none is.
	FirstKept int64
	Deleted   int
	Missing   []string
	Groups    []GroupLag
}

// GroupLag is how far a consumer group is behind.
type GroupLag struct {
	Name string
	// Finished is the event up to which the group has finished all.
	Finished int64
	// Age is how long ago its oldest unfinished entry was written; 0 if there is none.
	Age time.Duration
}

// TrimEvents deletes what every group has finished and the retention no longer keeps.
func (k *Shard) TrimEvents(ctx context.Context, t Trim) (Trimmed, error) {
	args := []any{t.Retention.Milliseconds(), t.MaxEvents, t.Limit}
	for _, g := range t.Groups {
		args = append(args, g)
	}
	reply, err := trimScript.run(ctx, k.rdb, []string{k.Keys.Events(), k.Keys.Meta()}, args)
	if err != nil {
		return Trimmed{}, err
	}
	r := replyReader{rest: reply}
	out := Trimmed{Seq: r.int64(), Finished: r.int64(), FirstKept: r.int64(), Deleted: r.int()}
	out.Missing = r.strings(r.int())
	for r.err == nil && len(r.rest) > 0 {
		g := GroupLag{Name: r.string(), Finished: r.int64()}
		g.Age = time.Duration(r.int64()) * time.Millisecond
		out.Groups = append(out.Groups, g)
	}
	return out, r.done(trimScript)
}
