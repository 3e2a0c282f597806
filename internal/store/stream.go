package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// ReadNew hands up to count new entries to the consumer, waiting up to block for the first one; none is no error.
// ErrNoGroup (errors.Is) if the group or the stream is not there.
func (k *Shard) ReadNew(ctx context.Context, group, consumer string, count int, block time.Duration) ([]RawEntry,
	error) {
	cmd := k.readNew(ctx, group, consumer, count, block)
	_ = k.rdb.Process(ctx, cmd) // the command has its own error
	return k.newEntries(cmd, group)
}

// ReadNewAhead is ReadNew and then Progress, in one round trip, for events that are likely to come. The progress is nil
// if it could not be read. While a slot of a cluster moves, the two may change places: a progress that is older than
// the entries refutes none of them.
func (k *Shard) ReadNewAhead(ctx context.Context, group, consumer string, count int, block time.Duration,
	likely stream.SeqRange) ([]RawEntry, *Progress, error) {
	pipe := k.rdb.Pipeline()
	cmd := k.readNew(ctx, group, consumer, count, block)
	_ = pipe.Process(ctx, cmd)
	progress := k.askProgress(ctx, pipe, group, []stream.SeqRange{likely})
	_, _ = pipe.Exec(ctx) // each command has its own error
	entries, err := k.newEntries(cmd, group)
	if len(entries) == 0 {
		return nil, nil, err
	}
	p, unread := progress()
	if unread != nil {
		return entries, nil, err
	}
	return entries, &p, err
}

// readNew makes the command of ReadNew. The client's read timeout must be above block.
func (k *Shard) readNew(ctx context.Context, group, consumer string, count int, block time.Duration) *redis.Cmd {
	args := []any{"XREADGROUP", "GROUP", group, consumer, "COUNT", count}
	if ms := block.Milliseconds(); ms > 0 { // no BLOCK at all for 0: BLOCK 0 would wait without limit
		args = append(args, "BLOCK", ms)
	}
	args = append(args, "STREAMS", k.Keys.Events(), ">")
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(int8(len(args) - 2)) // a cluster's client sends it where the others of its pipeline go
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

// Range reads the shard's entries from first to last, both included; "-" and "+" are the ends, "(" before an id
// excludes it. At most count are read.
func (k *Shard) Range(ctx context.Context, first, last string, count int) ([]RawEntry, error) {
	return rangeOf(ctx, k.rdb, k.Keys.Events(), first, last, count)
}

// Entries reads and decodes all entries of a shard from first to last, both included. Those that can't be read are left
// out.
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
		if err == nil { // one that can't be read is a dead letter, not the fault of its neighbours
			out = append(out, e)
		}
	}
	return out, nil
}

// rangeAll reads all entries from first to last, page by page.
func (k *Shard) rangeAll(ctx context.Context, first, last string) ([]RawEntry, error) {
	var all []RawEntry
	for page, err := range k.Pages(ctx, first, last) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// entriesPage is how many entries of a stream are read at once.
const entriesPage = 500

// Pages gives the pages of a stream that read reads from an id on: until one is not full, or an error, which is the
// last. The first may be empty.
func Pages(first string, read func(first string, count int) ([]RawEntry, error)) iter.Seq2[[]RawEntry, error] {
	return func(yield func([]RawEntry, error) bool) {
		for {
			page, err := read(first, entriesPage)
			if !yield(page, err) || err != nil || len(page) < entriesPage {
				return
			}
			first = "(" + page[len(page)-1].ID
		}
	}
}

// Pages gives the shard's entries from first to last, both included, as Range has them.
func (k *Shard) Pages(ctx context.Context, first, last string) iter.Seq2[[]RawEntry, error] {
	return Pages(first, func(first string, count int) ([]RawEntry, error) { return k.Range(ctx, first, last, count) })
}

// LastEntry is when the stream's last entry was written, also where it was trimmed; the zero time if the stream is gone
// or never had one.
func (k *Shard) LastEntry(ctx context.Context) (time.Time, error) {
	info, err := k.rdb.XInfoStream(ctx, k.Keys.Events()).Result()
	if err != nil {
		if err = Classify(err); redis.HasErrorPrefix(err, "no such key") {
			err = nil
		}
		return time.Time{}, err
	}
	text, _, _ := strings.Cut(info.LastGeneratedID, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the last id of %s is %q: %w", k.Keys.Events(), info.LastGeneratedID, err)
	}
	if ms == 0 {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms), nil
}

// LastSeq reads the seq of the shard's last event.
func (k *Shard) LastSeq(ctx context.Context) (int64, error) {
	h, err := k.Head(ctx)
	return h.Seq, err
}

var createGroupScript = newScript("create_group")

// CreateGroup makes the consumer group, reading from the first entry that is kept, and the stream if need be. It tells
// whether the group was made now.
func (k *Shard) CreateGroup(ctx context.Context, group string) (bool, error) {
	reply, err := k.run(ctx, createGroupScript, []string{k.Keys.Events()}, []any{group})
	if err != nil {
		return false, fmt.Errorf("create group %s: %w", group, err)
	}
	return one(createGroupScript, reply, func(s string) (bool, error) { return s == "made", nil })
}

// streamOf finds the entries of the only stream in a reply of XREADGROUP: RESP2 gives [[key, entries]], RESP3 {key:
// entries}.
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
			continue // a deleted entry has no fields; it can't be decoded and is told as such
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

// EntryOf finds the entry that has an event, which was decided at a time; false if the stream does not have it any more.
func (k *Shard) EntryOf(ctx context.Context, seq int64, decided time.Time) (stream.Entry, bool, error) {
	// An entry's id is the time of its decision, or later where the clock went back.
	for raw, err := range k.Pages(ctx, strconv.FormatInt(decided.UnixMilli(), 10), "+") {
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
