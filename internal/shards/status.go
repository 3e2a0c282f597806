package shards

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/stream"
)

// GroupStatus is how a consumer group stands on a shard.
type GroupStatus struct {
	// Seq is the shard's last event, Waiting how many events up to it the group has not finished.
	Seq, Waiting int64
	// Oldest is how long ago the first entry that waits was written; 0 if none does.
	Oldest time.Duration
	// Parked entries wait for another attempt, Dead letters for a person.
	Parked, Dead int64
	Workers      []Worker
	Control      SinkControl
}

// Worker is a consumer of a group.
type Worker struct {
	Name string
	// Holds is how many entries it has in hand, Seen how long ago it last asked Redis for anything.
	Holds int64
	Seen  time.Duration
}

const parkingPrefix = "_retry/"

// Status tells how a group stands on a shard. It only reads, and what it reads moves meanwhile.
func (k *Shard) Status(ctx context.Context, group string) (GroupStatus, error) {
	var out GroupStatus
	var err error
	if out.Seq, err = k.LastSeq(ctx); err != nil {
		return out, err
	}
	if out.Control, err = k.SinkControl(ctx, group); err != nil {
		return out, err
	}
	finished, exists, err := k.GroupFinished(ctx, group, out.Seq)
	if err != nil {
		return out, err
	}
	if !exists {
		finished = 0
	}
	if out.Waiting, err = k.unfinished(ctx, group, stream.SeqRange{First: finished + 1, Last: out.Seq}); err != nil {
		return out, err
	}
	if out.Dead, err = k.rdb.XLen(ctx, k.Keys.Dead(group)).Result(); err != nil {
		return out, fmt.Errorf("count the dead letters of %s: %w", group, Classify(err))
	}
	if !exists {
		return out, nil
	}
	if out.Waiting > 0 {
		if out.Oldest, err = k.oldest(ctx, group); err != nil {
			return out, err
		}
	}
	return out, k.consumers(ctx, group, &out)
}

// unfinished counts the events of a range that the group has not done.
func (k *Shard) unfinished(ctx context.Context, group string, r stream.SeqRange) (n int64, err error) {
	const page = 1 << 20
	for first := r.First; first <= r.Last; first += page {
		part := stream.SeqRange{First: first, Last: min(r.Last, first+page-1)}
		done, err := k.GroupDone(ctx, group, part)
		if err != nil {
			return n, err
		}
		for seq := part.First; seq <= part.Last; seq++ {
			if !done.Has(seq) {
				n++
			}
		}
	}
	return n, nil
}

// oldest is how long ago the first entry was written that the group has not finished.
func (k *Shard) oldest(ctx context.Context, group string) (time.Duration, error) {
	pipe := k.rdb.Pipeline()
	now := pipe.Time(ctx)
	pending := pipe.XPending(ctx, k.Keys.Events(), group)
	groups := pipe.XInfoGroups(ctx, k.Keys.Events())
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("find the oldest entry of group %s: %w", group, Classify(err))
	}
	first := pending.Val().Lower
	for _, g := range groups.Val() {
		if g.Name != group || first != "" {
			continue
		}
		next, err := k.Range(ctx, "("+g.LastDeliveredID, "+", 1)
		if err != nil || len(next) == 0 {
			return 0, err
		}
		first = next[0].ID
	}
	if first == "" { // finished meanwhile
		return 0, nil
	}
	text, _, _ := strings.Cut(first, "-")
	written, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s has an entry with the id %q: %w", k.Keys.Events(), first, err)
	}
	return max(now.Val().Sub(time.UnixMilli(written)), 0), nil
}

// consumers adds the group's workers, and what is parked.
func (k *Shard) consumers(ctx context.Context, group string, out *GroupStatus) error {
	list, err := k.rdb.XInfoConsumers(ctx, k.Keys.Events(), group).Result()
	if err != nil {
		return fmt.Errorf("consumers of group %s: %w", group, Classify(err))
	}
	for _, c := range list {
		if strings.HasPrefix(c.Name, parkingPrefix) {
			out.Parked += c.Pending
		} else {
			out.Workers = append(out.Workers, Worker{Name: c.Name, Holds: c.Pending, Seen: c.Idle})
		}
	}
	return nil
}
