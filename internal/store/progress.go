package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var raiseDoneFloorScript = newDrainScript("raise_done_floor")

// Finished returns the highest event, at most seq, up to which a consumer group has finished all events of the
// shard. seq must be an event that the shard has at the time of the call. Concurrent changes can make the result too
// low, but never too high. exists is false if the group or the stream does not exist.
func (g Group) Finished(ctx context.Context, seq int64) (finished int64, exists bool, err error) {
	pipe := g.shard.rdb.Pipeline()
	ask := g.shard.askGroup(ctx, pipe, g.name)
	_, _ = pipe.Exec(ctx) // each command has its own error
	at, err := ask()
	if err != nil || !at.exists {
		return 0, at.exists, err
	}
	finished, _, err = g.shard.finished(ctx, &at, seq)
	return finished, true, err
}

// DoneUpTo returns the highest event up to which a group has finished all events from the seq first on, by its done
// bits. The group need not exist.
func (g Group) DoneUpTo(ctx context.Context, first int64) (int64, error) {
	head, err := g.shard.Head(ctx)
	for next := max(first, head.DoneFloor, 1); err == nil && next <= head.Seq; {
		page := stream.SeqRange{First: next, Last: min(head.Seq, next+ChunkEvents)}
		var done Bitset
		if done, err = g.Done(ctx, page); err != nil {
			break
		}
		for ; next <= page.Last; next++ {
			if !done.Has(next) {
				return next - 1, nil
			}
		}
	}
	return head.Seq, err
}

// HasGroup reports whether any shard has a consumer group of that name, of Hongbao or of another program. The error
// says which shards did not answer, if no other shard has it.
func (s *Store) HasGroup(ctx context.Context, group string) (bool, error) {
	found := make([]bool, s.Len())
	errs := Each(s.Len(), AllAtOnce, func(i int) error {
		pipe := s.rdb.Pipeline()
		ask := s.shards[i].askGroup(ctx, pipe, group)
		_, _ = pipe.Exec(ctx) // each command has its own error
		at, err := ask()
		found[i] = at.exists
		return err
	})
	if slices.Contains(found, true) {
		return true, nil
	}
	return false, errors.Join(errs...)
}

// groupAt is the position of a consumer group in the stream. A group that does not exist yet is at the beginning of
// the stream. first and next are start ids for XRANGE; they are empty if there is no stream.
type groupAt struct {
	exists bool
	// first is the first entry that the group has not finished. next is the position after the last entry that it has
	// read.
	first, next string
}

// askGroup queues the reads of a group's position in a pipeline. The function that it returns parses the replies.
func (k *Shard) askGroup(ctx context.Context, pipe redis.Pipeliner, group string) func() (groupAt, error) {
	events := k.Keys.Events()
	there, groups, pending := pipe.Exists(ctx, events), pipe.XInfoGroups(ctx, events), pipe.XPending(ctx, events, group)
	return func() (groupAt, error) {
		if n, err := there.Result(); err != nil || n == 0 {
			return groupAt{}, Classify(err)
		}
		list, err := groups.Result()
		if err != nil {
			return groupAt{}, fmt.Errorf("groups of %s: %w", events, Classify(err))
		}
		i := slices.IndexFunc(list, func(g redis.XInfoGroup) bool { return g.Name == group })
		if i < 0 {
			return groupAt{first: "-", next: "-"}, nil
		}
		at := groupAt{exists: true, next: "(" + list[i].LastDeliveredID}
		at.first = at.next
		waits, err := pending.Result()
		if err != nil {
			return at, fmt.Errorf("pending entries of group %s: %w", group, Classify(err))
		}
		if waits.Count > 0 {
			at.first = waits.Lower
		}
		return at, nil
	}
}

// finished returns the highest event, at most seq, up to which a group at that position has finished all events.
// unread is the id of the first entry that the group has not read, or empty. It takes one round trip, unless many
// entries are unreadable.
func (k *Shard) finished(ctx context.Context, at *groupAt, seq int64) (finished int64, unread string, err error) {
	pipe := k.rdb.Pipeline()
	from := askRange(ctx, pipe, k.Keys.Events(), at.first, "+", seqPage)
	next := askRange(ctx, pipe, k.Keys.Events(), at.next, "+", 1)
	answer := pipe.HMGet(ctx, k.Keys.Meta(), headFields...) // after the entries: see decode
	_, _ = pipe.Exec(ctx)                                   // each command has its own error
	raw, err := from()
	if err != nil {
		return 0, "", err
	}
	waits, err := next()
	if err != nil {
		return 0, "", err
	}
	if len(waits) > 0 {
		unread = waits[0].ID
	}
	head, err := k.parseOpenHead(answer)
	if err != nil {
		return 0, unread, err
	}
	entries, _, _, err := k.decode(head, raw)
	first := int64(0)
	switch {
	case err != nil:
	case len(entries) > 0:
		first = entries[0].Seq
	case len(raw) == seqPage:
		first, err = k.seqFrom(ctx, "("+raw[seqPage-1].ID)
	}
	if first > 0 {
		seq = min(seq, first-1)
	}
	return seq, unread, err
}

// RaiseDoneFloor raises the done floor from chunk from to chunk to, and deletes the done bits of the groups in the
// chunks below to. The stream must not have these events any more. The floor never falls.
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

// PendingEvents returns the events of a group's oldest pending entries, by entry id, for at most count entries. It
// omits entries that are unreadable or no longer in the stream. The result is only complete for events below beyond.
// Entries in known, an earlier result, are not read again.
func (g Group) PendingEvents(ctx context.Context, count int64, known map[string]stream.SeqRange) (
	held map[string]stream.SeqRange, beyond int64, err error,
) {
	rows, err := g.shard.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: g.shard.Keys.Events(), Group: g.name,
		Start: "-", End: "+",
		Count: count}).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("pending entries of group %s of %s: %w", g.name, g.shard.Keys.Events(), Classify(err))
	}
	held = make(map[string]stream.SeqRange, len(rows))
	pipe := g.shard.rdb.Pipeline()
	asked := map[string]*redis.XMessageSliceCmd{}
	for i := range rows {
		if r, ok := known[rows[i].ID]; ok {
			held[rows[i].ID] = r
		} else {
			asked[rows[i].ID] = pipe.XRange(ctx, g.shard.Keys.Events(), rows[i].ID, rows[i].ID)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("read pending entries of %s: %w", g.shard.Keys.Events(), Classify(err))
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
		beyond = held[rows[count-1].ID].First // 0 if unreadable: the result is complete for no event
	}
	return held, beyond, nil
}

// seqsOf returns the events of an entry, and false if the entry is unreadable.
func seqsOf(fields map[string]any) (stream.SeqRange, bool) {
	var values []string
	for name, value := range fields {
		text, _ := value.(string)
		values = append(values, name, text)
	}
	e, err := stream.ParseEntry(0, "", values)
	return stream.SeqRange{First: e.Seq, Last: e.Last()}, err == nil
}

// seqPage is how many entries are read at once to find a readable one.
const seqPage = 16

// seqFrom returns the first seq at or after an id; 0 if there is none. It skips unreadable and forged entries.
func (k *Shard) seqFrom(ctx context.Context, from string) (int64, error) {
	for {
		raw, err := askRange(ctx, k.rdb, k.Keys.Events(), from, "+", seqPage)()
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
		if len(raw) < seqPage {
			return 0, nil
		}
		from = "(" + raw[len(raw)-1].ID
	}
}
