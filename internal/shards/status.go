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
	// Oldest is how long ago the first entry that waits was written; 0 if none does. Unread is the same of the entries
	// that no worker has read.
	Oldest, Unread time.Duration
	// Parked entries wait for another attempt, Dead letters for a person. Claims are open: their batches are on their
	// way, or their workers died.
	Parked, Dead, Claims int64
	// ParkedAt counts the parked entries of each level.
	ParkedAt []int64
	Workers  []Worker
	Control  SinkControl
}

// Worker is a consumer of a group.
type Worker struct {
	Name string
	// Holds is how many entries it has in hand, Seen how long ago it last asked Redis for anything.
	Holds int64
	Seen  time.Duration
}

const parkingPrefix = "_retry/"

// maxLevels bounds the parking levels that are counted one by one: consumer.backoff doubles up to a day.
const maxLevels = 64

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
	pipe := k.rdb.Pipeline()
	dead, claims := pipe.XLen(ctx, k.Keys.Dead(group)), pipe.HLen(ctx, k.Keys.Claims(group))
	if _, err = pipe.Exec(ctx); err != nil {
		return out, fmt.Errorf("count the dead letters and claims of %s: %w", group, Classify(err))
	}
	out.Dead, out.Claims = dead.Val(), claims.Val()
	if !exists {
		return out, nil
	}
	if out.Waiting > 0 {
		if out.Oldest, out.Unread, err = k.oldest(ctx, group); err != nil {
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

// oldest is how long ago the first entry was written that the group has not finished, and the first that nobody has
// read.
func (k *Shard) oldest(ctx context.Context, group string) (unfinished, unread time.Duration, err error) {
	pipe := k.rdb.Pipeline()
	now := pipe.Time(ctx)
	pending := pipe.XPending(ctx, k.Keys.Events(), group)
	groups := pipe.XInfoGroups(ctx, k.Keys.Events())
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, fmt.Errorf("find the oldest entry of group %s: %w", group, Classify(err))
	}
	first, next := pending.Val().Lower, ""
	for _, g := range groups.Val() {
		if g.Name != group {
			continue
		}
		entries, err := k.Range(ctx, "("+g.LastDeliveredID, "+", 1)
		if err != nil {
			return 0, 0, err
		}
		if len(entries) > 0 {
			next = entries[0].ID
		}
	}
	if first == "" {
		first = next
	}
	if unread, err = k.age(next, now.Val()); err == nil {
		unfinished, err = k.age(first, now.Val())
	}
	return unfinished, unread, err
}

// age is how long before now an entry was written; 0 for none: it was finished meanwhile.
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

// consumers adds the group's workers, and what is parked.
func (k *Shard) consumers(ctx context.Context, group string, out *GroupStatus) error {
	list, err := k.rdb.XInfoConsumers(ctx, k.Keys.Events(), group).Result()
	if err != nil {
		return fmt.Errorf("consumers of group %s: %w", group, Classify(err))
	}
	for _, c := range list {
		if level, ok := strings.CutPrefix(c.Name, parkingPrefix); ok {
			out.Parked += c.Pending
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
