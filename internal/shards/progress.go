package shards

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/stream"
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

// RaiseDoneFloor raises the done floor from one chunk of done bits to another, and deletes the chunks of the groups
// between them. No event of theirs may be in the stream any more. A floor below the one that was noted changes nothing.
func (k *Shard) RaiseDoneFloor(ctx context.Context, from, to int64, groups []string) error {
	const atOnce = 1_000 // keys
	for step := max(1, atOnce/int64(max(1, len(groups)))); from < to; {
		upto := min(to, from+step)
		keys := []string{k.Keys.Meta()}
		for ; from < upto; from++ {
			for _, g := range groups {
				keys = append(keys, k.Keys.Done(g, from))
			}
		}
		if _, err := k.run(ctx, raiseDoneFloorScript, keys, []any{upto * ChunkEvents}); err != nil {
			return err
		}
	}
	return nil
}

// Held gives, by entry id, the events of the oldest entries that a group has pending, at most count entries. An entry
// that is gone from the stream or can't be read has none. This tells nothing of the events from beyond on. known is an
// earlier answer.
func (k *Shard) Held(ctx context.Context, group string, count int64, known map[string]stream.SeqRange) (
	held map[string]stream.SeqRange, beyond int64, err error,
) {
	rows, err := k.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: k.Keys.Events(), Group: group, Start: "-", End: "+",
		Count: count}).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("pending entries of group %s of %s: %w", group, k.Keys.Events(), Classify(err))
	}
	held = make(map[string]stream.SeqRange, len(rows))
	pipe := k.rdb.Pipeline()
	asked := map[string]*redis.XMessageSliceCmd{}
	for i := range rows {
		if r, ok := known[rows[i].ID]; ok {
			held[rows[i].ID] = r
		} else {
			asked[rows[i].ID] = pipe.XRange(ctx, k.Keys.Events(), rows[i].ID, rows[i].ID)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("read pending entries of %s: %w", k.Keys.Events(), Classify(err))
	}
	for id, cmd := range asked {
		for _, m := range cmd.Val() {
			if r, ok := seqsOf(m.Values); ok {
				held[id] = r
			}
		}
	}
	beyond = math.MaxInt64
	if int64(len(rows)) == count {
		beyond = held[rows[count-1].ID].First // 0 if it can't be read: then this tells nothing
	}
	return held, beyond, nil
}

// seqsOf tells which events an entry has.
func seqsOf(fields map[string]any) (stream.SeqRange, bool) {
	values := make([]string, 0, 2*len(fields))
	for _, name := range []string{"v", "k", "c", "q", "e", "t", "g"} {
		text, _ := fields[name].(string)
		values = append(values, name, text)
	}
	e, err := stream.ParseEntry(0, "", values)
	return stream.SeqRange{First: e.Seq, Last: e.Last()}, err == nil
}

// seqFrom is the first seq at or after an id; 0 if there is none. It passes over entries that can't be read and those
// that the shard's head refutes.
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
