package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// ReadNew delivers up to count new entries to the consumer. It waits up to block for the first entry. If none
// arrives, it returns no entries and no error. The error wraps ErrNoGroup if the group or the stream does not exist.
func (g Group) ReadNew(ctx context.Context, consumer string, count int, block time.Duration) ([]RawEntry,
	error) {
	cmd := g.shard.readNew(ctx, g.name, consumer, count, block)
	_ = g.shard.store.reads.Process(ctx, cmd) // the command has its own error
	return g.shard.newEntries(cmd, g.name)
}

// ReadNewAhead reads new entries and, in the same round trip, the progress of the events that they probably have; an
// empty range asks for the progress of no event. Both answers come from the same server. If the shard has an epoch
// (At) and is in another one there, the error is ErrStale. Entries may come together with an error:
// they are then pending for this consumer, as others are. During a slot migration, the progress may be read first. So
// its head may be older than the entries, and then it does not prove that an entry is forged.
func (g Group) ReadNewAhead(ctx context.Context, consumer string, count int, block time.Duration,
	likely stream.SeqRange) ([]RawEntry, *Progress, error) {
	pipe := g.shard.store.reads.Pipeline()
	cmd := g.shard.readNew(ctx, g.name, consumer, count, block)
	_ = pipe.Process(ctx, cmd)
	var ranges []stream.SeqRange
	if likely.Last > 0 {
		ranges = []stream.SeqRange{likely}
	}
	progress := g.shard.askProgress(ctx, pipe, g.name, ranges)
	_, _ = pipe.Exec(ctx) // each command has its own error
	entries, err := g.shard.newEntries(cmd, g.name)
	if len(entries) == 0 {
		return nil, nil, err
	}
	p, unread := progress()
	if err = errors.Join(err, unread); err != nil {
		return entries, nil, err
	}
	return entries, &p, nil
}

// readNew returns the XREADGROUP command of ReadNew. The client's read timeout must be longer than block.
func (k *Shard) readNew(ctx context.Context, group, consumer string, count int, block time.Duration) *redis.Cmd {
	args := []any{"XREADGROUP", "GROUP", group, consumer, "COUNT", count}
	if ms := block.Milliseconds(); ms > 0 { // BLOCK 0 would wait without limit
		args = append(args, "BLOCK", ms)
	}
	args = append(args, "STREAMS", k.Keys.Events(), ">")
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(int8(len(args) - 2)) // lets a cluster client route the whole pipeline to one node
	return cmd
}

func (k *Shard) newEntries(cmd *redis.Cmd, group string) ([]RawEntry, error) {
	v, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s for group %s: %w", k.Keys.Events(), group, Classify(err))
	}
	list, err := streamOf(v)
	if err != nil {
		return nil, fmt.Errorf("read %s for group %s: %w", k.Keys.Events(), group, err)
	}
	return rawEntries(list, 1)
}

// Range returns up to count of the shard's entries from first to last, both included. first and last are ids as in
// XRANGE: "-" and "+" are the ends, and "(" before an id excludes it. Range keeps the pace of long reads.
func (k *Shard) Range(ctx context.Context, first, last string, count int) ([]RawEntry, error) {
	return k.pacedRange(ctx, k.Keys.Events(), first, last, count)
}

// Entries returns all decoded entries of a shard from first to last, both included. It omits unreadable entries.
func (k *Shard) Entries(ctx context.Context, first, last string) ([]stream.Entry, error) {
	raw, err := k.rangeAll(ctx, first, last)
	if err != nil {
		return nil, err
	}
	var out []stream.Entry
	for i := range raw {
		e, err := stream.ParseEntry(k.Keys.Index(), raw[i].ID, raw[i].Values)
		if errors.Is(err, stream.ErrNewerEntry) {
			return nil, err
		}
		if err == nil { // workers make a dead letter of an unreadable entry
			out = append(out, e)
		}
	}
	return out, nil
}

// rangeAll returns all entries from first to last. It reads them in pages.
func (k *Shard) rangeAll(ctx context.Context, first, last string) ([]RawEntry, error) {
	var all []RawEntry
	for page, err := range k.pages(ctx, first, last) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// Pages returns the pages of a stream. It calls read for each page, with the id to start at. It ends after an error
// or a page that is not full. The first page may be empty.
func Pages(first string, read func(first string, count int) ([]RawEntry, error)) iter.Seq2[[]RawEntry, error] {
	return pagesOf(entriesPage, first, read)
}

func pagesOf(size int, first string, read func(first string, count int) ([]RawEntry, error)) iter.Seq2[[]RawEntry, error] {
	return func(yield func([]RawEntry, error) bool) {
		for {
			page, err := read(first, size)
			if !yield(page, err) || err != nil || len(page) < size {
				return
			}
			first = "(" + page[len(page)-1].ID
		}
	}
}

// Pages returns the shard's entries from first to last, both included, see Range.
func (k *Shard) Pages(ctx context.Context, first, last string) iter.Seq2[[]RawEntry, error] {
	return Pages(first, func(first string, count int) ([]RawEntry, error) { return k.Range(ctx, first, last, count) })
}

// pages is Pages for deliveries and restores, which are urgent: its pages are larger, and without rests.
func (k *Shard) pages(ctx context.Context, first, last string) iter.Seq2[[]RawEntry, error] {
	return pagesOf(urgentPage, first, func(first string, count int) ([]RawEntry, error) {
		return askRange(ctx, k.rdb, k.Keys.Events(), first, last, count)()
	})
}

// LastID returns the ID of the stream's last entry, "" if the stream is empty.
func (k *Shard) LastID(ctx context.Context) (string, error) {
	list, err := k.rdb.XRevRangeN(ctx, k.Keys.Events(), "+", "-", 1).Result()
	if err != nil {
		return "", fmt.Errorf("read the last entry of %s: %w", k.Keys.Events(), Classify(err))
	}
	if len(list) == 0 {
		return "", nil
	}
	return list[0].ID, nil
}

// LastSeq returns the seq of the shard's last event.
func (k *Shard) LastSeq(ctx context.Context) (int64, error) {
	h, err := k.Head(ctx)
	return h.Seq, err
}

var createGroupScript = newDrainScript("create_group")

// Create creates the consumer group, and the stream if it does not exist. The group starts at the first entry in
// the stream. Create reports whether this call created the group.
func (g Group) Create(ctx context.Context) (bool, error) {
	reply, err := g.shard.run(ctx, createGroupScript, []string{g.shard.Keys.Events()}, []any{g.name})
	if err != nil {
		return false, fmt.Errorf("create group %s: %w", g.name, err)
	}
	return one(createGroupScript, reply, func(s string) (bool, error) { return s == "made", nil })
}

// GroupBegin is where a consumer group begins to read.
type GroupBegin struct {
	// First is the event from which on the group will get every event; 0 if it has read something. It does not change before:
	// no entry is deleted that a group has not read.
	First        int64
	Exists, Read bool
}

// Begin returns where a group begins to read.
func (g Group) Begin(ctx context.Context) (b GroupBegin, err error) {
	last, err := g.shard.LastSeq(ctx) // before the entries: without any, the first event is later than this one
	if err != nil {
		return b, err
	}
	pipe := g.shard.rdb.Pipeline()
	ask := g.shard.askGroup(ctx, pipe, g.name)
	_, _ = pipe.Exec(ctx) // each command has its own error
	at, err := ask()
	if b.Exists, b.Read = at.exists, at.exists && at.next != "(0-0"; err != nil || b.Read {
		return b, err
	}
	if b.First, err = g.shard.seqFrom(ctx, "-"); b.First == 0 {
		b.First = last + 1
	}
	if err != nil {
		return b, err
	}
	// Entries behind an unfinished one may be gone, although it is still the first.
	thinned, err := g.shard.rdb.HGet(ctx, g.shard.Keys.Meta(), "thinned").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return b, fmt.Errorf("where group %s begins: %w", g.name, Classify(err))
	}
	b.First = max(b.First, thinned+1)
	return b, nil
}

// Owed returns what the group owes, if this is recorded of it. Read the record after the group: a group has a record
// before it reads. So one that has read nothing owes what it will get, and one without record owes everything.
func (b GroupBegin) Owed(recorded stream.Owed) stream.Owed {
	if recorded == nil && !b.Read {
		return stream.Owed{{First: b.First, Last: stream.Forever}}
	}
	return recorded
}

// streamOf returns the entries in a reply of XREADGROUP for one stream. The reply is [[key, entries]] with RESP2, and
// {key: entries} with RESP3.
func streamOf(v any) ([]any, error) {
	var entries any
	switch v := v.(type) {
	case []any:
		if pair, ok := first(v).([]any); ok && len(pair) == 2 {
			entries = pair[1]
		}
	case map[any]any:
		for _, entries = range v {
			break
		}
	}
	if list, ok := entries.([]any); ok {
		return list, nil
	}
	return nil, fmt.Errorf("redis answered %T, want the entries of one stream", v)
}

func first(list []any) any {
	if len(list) != 1 {
		return nil
	}
	return list[0]
}

func rawEntries(list []any, attempt int64) ([]RawEntry, error) {
	out := make([]RawEntry, len(list))
	for i := range list {
		pair, ok := list[i].([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("redis answered %T as an entry, want id and fields", list[i])
		}
		id, ok := pair[0].(string)
		if !ok {
			return nil, fmt.Errorf("redis answered %T as an entry's id", pair[0])
		}
		out[i] = RawEntry{ID: id, Attempt: attempt}
		values, ok := pair[1].([]any)
		if !ok {
			continue // a deleted entry has no fields; the decoder reports it as unreadable
		}
		out[i].Values = make([]string, len(values))
		for j := range values {
			if out[i].Values[j], ok = values[j].(string); !ok {
				return nil, fmt.Errorf("redis answered %T in entry %s", values[j], id)
			}
		}
	}
	return out, nil
}

// EntryOf returns the entry of an event that was decided at a given time. It returns false if the entry is no longer
// in the stream.
func (k *Shard) EntryOf(ctx context.Context, seq int64, decided time.Time) (stream.Entry, bool, error) {
	// The id of an entry has the time of its decision, or a later time if the clock went back.
	for raw, err := range k.pages(ctx, strconv.FormatInt(decided.UnixMilli(), 10), "+") {
		if err != nil {
			return stream.Entry{}, false, err
		}
		entries, _, _, err := k.Decode(ctx, raw)
		if err != nil {
			return stream.Entry{}, false, err
		}
		for i := range entries {
			switch e := &entries[i]; {
			case e.Seq > seq:
				return stream.Entry{}, false, nil
			case e.Last() >= seq:
				return *e, true, nil
			}
		}
	}
	return stream.Entry{}, false, nil
}
