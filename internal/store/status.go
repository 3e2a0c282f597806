package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// GroupStatus is the state of a consumer group on a shard.
type GroupStatus struct {
	Exists bool // whether the shard has the group
	// Seq is the shard's last seq. Waiting is how many events up to Seq the group has not finished.
	Seq, Waiting int64
	// Oldest is how long ago the oldest unfinished entry was written, and Unread how long ago the oldest entry that
	// no worker has read. They are 0 if there is no such entry.
	Oldest, Unread time.Duration
	// Parked is the number of entries that wait for another attempt. Dead is the number of dead letters. Claims is
	// the number of claims: their pushes are in progress, or their workers died.
	Parked, Dead, Claims int64
	// ParkedAt has the number of parked entries of each level. Held is the number of parked entries whose campaign is
	// paused for the sink.
	ParkedAt []int64
	Held     int64
	Workers  []Worker
	Control  SinkControl
	// Campaigns are the decisions about single campaigns.
	Campaigns []CampaignPause
}

// Worker is a consumer of a group.
type Worker struct {
	Name string
	// Holds is the number of entries that are pending for the worker. Seen is how long ago it last called Redis.
	Holds int64
	Seen  time.Duration
}

const parkingPrefix = "_retry/"

// maxLevels limits ParkedAt. The backoff doubles from level to level up to a day, so higher levels do not occur.
const maxLevels = 64

// Status returns the state of a group on a shard. It takes up to three round trips, and one more for each million
// unfinished events. The shard may change between them.
func (g Group) Status(ctx context.Context) (GroupStatus, error) {
	pipe := g.shard.rdb.Pipeline()
	// before the group, so that its state covers these events
	answer := pipe.HMGet(ctx, g.shard.Keys.Meta(), headFields...)
	opened := pipe.HGet(ctx, g.shard.Keys.Meta(), skippedField)
	control := pipe.HGetAll(ctx, g.shard.Keys.Sink(g.name))
	ask := g.shard.askGroup(ctx, pipe, g.name)
	workers := pipe.XInfoConsumers(ctx, g.shard.Keys.Events(), g.name)
	dead, claims := pipe.XLen(ctx, g.shard.Keys.Dead(g.name)), pipe.HLen(ctx, g.shard.Keys.Claims(g.name))
	clock := pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each command has its own error
	var out GroupStatus
	head, err := g.shard.parseHead(answer)
	if err != nil {
		return out, err
	}
	out.Seq, out.Dead, out.Claims = head.Seq, dead.Val(), claims.Val()
	if out.Control, err = g.shard.readControl(g.name, control); err != nil {
		return out, err
	}
	if out.Control.Campaigns > 0 {
		if out.Campaigns, err = g.PausedCampaigns(ctx); err != nil {
			return out, err
		}
	}
	at, err := ask()
	if err != nil {
		return out, err
	}
	if err := cmp.Or(dead.Err(), claims.Err(), clock.Err()); err != nil {
		return out, fmt.Errorf("count the dead letters and claims of %s: %w", g.name, Classify(err))
	}
	out.Exists = at.exists
	finished, unread := int64(0), ""
	if at.next != "" {
		if finished, unread, err = g.shard.finished(ctx, &at, out.Seq); err != nil {
			return out, err
		}
	}
	if !at.exists {
		finished = 0 // the done bits decide about events that were trimmed
	} else if err := addConsumers(g.name, workers, &out); err != nil {
		return out, err
	}
	out.Waiting, err = g.shard.unfinished(ctx, g.name, events(finished+1, out.Seq, opened.Val()))
	if err != nil || out.Waiting == 0 {
		return out, err
	}
	first := at.first
	if at.first == at.next { // the group has nothing pending
		first = unread
	}
	if out.Unread, err = g.shard.age(unread, clock.Val()); err == nil {
		out.Oldest, err = g.shard.age(first, clock.Val())
	}
	return out, err
}

// events returns the seqs of a range without those that openings have skipped. If the text skipped is unreadable,
// events returns the whole range; an audit reports the text.
func events(first, last int64, skipped string) []stream.SeqRange {
	all := []stream.SeqRange{{First: first, Last: last}}
	list, err := parseSkipped(skipped)
	if err != nil {
		return all
	}
	return Without(all, rangesOf(list))
}

// unfinished counts the events that the group has not finished.
func (k *Shard) unfinished(ctx context.Context, group string, events []stream.SeqRange) (n int64, err error) {
	const page = 1 << 20
	for _, r := range events {
		for first := r.First; first <= r.Last; first += page {
			part := stream.SeqRange{First: first, Last: min(r.Last, first+page-1)}
			done, err := k.Group(group).FinishedEvents(ctx, part)
			if err != nil {
				return n, err
			}
			for seq := part.First; seq <= part.Last; seq++ {
				if !done.Has(seq) {
					n++
				}
			}
		}
	}
	return n, nil
}

// age returns how long before now an entry was written. It returns 0 for an empty id: the entry was finished
// meanwhile.
func (k *Shard) age(id string, now time.Time) (time.Duration, error) {
	if id == "" {
		return 0, nil
	}
	text, _, _ := strings.Cut(id, "-")
	written, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s has an entry with the id %q: %w", k.Keys.Events(), id, err)
	}
	return max(now.Sub(time.UnixMilli(written)), 0), nil
}

// addConsumers adds the group's workers and the counts of its parked entries.
func addConsumers(group string, answer *redis.XInfoConsumersCmd, out *GroupStatus) error {
	list, err := answer.Result()
	if err != nil {
		return fmt.Errorf("consumers of group %s: %w", group, Classify(err))
	}
	for _, c := range list {
		if wait, ok := strings.CutPrefix(c.Name, parkingPrefix); ok {
			out.Parked += c.Pending
			level, _, _ := strings.Cut(wait, "/")
			if level == "paused" {
				out.Held += c.Pending
			}
			if n, err := strconv.Atoi(level); err == nil && n >= 0 && n < maxLevels {
				out.ParkedAt = append(out.ParkedAt, make([]int64, max(0, n+1-len(out.ParkedAt)))...)
				out.ParkedAt[n] += c.Pending
			}
		} else {
			out.Workers = append(out.Workers, Worker{Name: c.Name, Holds: c.Pending, Seen: c.Idle})
		}
	}
	return nil
}
