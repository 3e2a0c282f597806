package shards

import (
	"context"
	"fmt"
)

var raiseDoneFloorScript = newDrainScript("raise_done_floor")

// GroupFinished tells up to which event a consumer group has finished all on a shard, at most seq, which must be an
// event that the shard already had when it is called. Whatever moves meanwhile, the answer is never too high. exists is
// false if there is no such group, or no stream yet.
func (k *Shard) GroupFinished(ctx context.Context, group string, seq int64) (finished int64, exists bool, err error) {
	events := k.Keys.Events()
	there, err := k.rdb.Exists(ctx, events).Result()
	if err != nil || there == 0 {
		return 0, false, Classify(err)
	}
	groups, err := k.rdb.XInfoGroups(ctx, events).Result()
	if err != nil {
		return 0, false, fmt.Errorf("groups of %s: %w", events, Classify(err))
	}
	for i := range groups {
		g := &groups[i]
		if g.Name != group {
			continue
		}
		from := "(" + g.LastDeliveredID
		if g.Pending > 0 {
			pending, err := k.rdb.XPending(ctx, events, group).Result()
			if err != nil {
				return 0, true, fmt.Errorf("pending entries of group %s: %w", group, Classify(err))
			}
			if pending.Count > 0 { // else all of them were finished just now
				from = pending.Lower
			}
		}
		first, err := k.seqFrom(ctx, from)
		if err != nil {
			return 0, true, err
		}
		if first > 0 {
			seq = min(seq, first-1)
		}
		return seq, true, nil
	}
	return 0, false, nil
}

// RaiseDoneFloor notes that all events below seq were finished by every group and have left the stream, so that their done
// bits may go. A seq below the one that was noted changes nothing.
func (k *Shard) RaiseDoneFloor(ctx context.Context, seq int64) error {
	_, err := raiseDoneFloorScript.run(ctx, k.rdb, []string{k.Keys.Meta()}, []any{seq})
	return err
}

// seqFrom is the first seq at or after an id; 0 if there is none. It passes over entries that can't be read and those that the
// shard's head refutes.
func (k *Shard) seqFrom(ctx context.Context, from string) (int64, error) {
	const page = 16
	for {
		raw, err := k.Range(ctx, from, "+", page)
		if err != nil {
			return 0, err
		}
		entries, _, _, err := k.Decode(ctx, raw)
		if err != nil {
			return 0, err
		}
		if len(entries) > 0 {
			return entries[0].Seq, nil
		}
		if len(raw) < page {
			return 0, nil
		}
		from = "(" + raw[len(raw)-1].ID
	}
}
