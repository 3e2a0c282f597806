package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

var (
	reclaimScript             = newDrainScript("reclaim", "parking")
	renewScript               = newScript("renew")
	parkScript                = newScript("park", "parking")
	removeIdleConsumersScript = newScript("remove_idle_consumers", "parking")
)

// RawEntry is a stream entry as Redis has it, not decoded yet.
type RawEntry struct {
	ID string
	// Attempt is the number of its deliveries to the group by Redis's count, including this one.
	Attempt int64
	// Values are its fields and values in order.
	Values []string
}

// ReclaimCall has the arguments of reclaim.lua.
type ReclaimCall struct {
	Group, Consumer string
	Count           int
	Lease           time.Duration
	// Lead is how long the caller leads from now on, if no other worker leads.
	Lead time.Duration
	// Backoff has the backoff of the parking levels 0, 1, 2, ...; the last one applies to all levels above. It has at
	// least one.
	Backoff []time.Duration
}

// Reclaimed is the reply of reclaim.lua.
type Reclaimed struct {
	// Entries are the entries of dead workers, and the parked ones whose backoff is over. It is empty while the sink
	// is paused.
	Entries []RawEntry
	// Gone are the ids of entries that were deleted from the stream while they were pending: an incident.
	Gone []string
	Sink SinkControl
	// Led is how long another worker still leads; 0 if the caller leads. Only the leader gets entries.
	Led time.Duration
}

// Reclaim hands the worker the entries whose time has come. It also shows Redis that the worker lives. If the sink's
// hash can't be read, Reclaim returns the entries with the error, because the worker owns them already.
func (k *Shard) Reclaim(ctx context.Context, t ReclaimCall) (out Reclaimed, err error) {
	args := []any{t.Group, t.Consumer, t.Count, t.Lease.Milliseconds(), max(1, t.Lead.Milliseconds())}
	for _, b := range t.Backoff {
		args = append(args, b.Milliseconds())
	}
	reply, err := k.run(ctx, reclaimScript, []string{k.Keys.Events(), k.Keys.Sink(t.Group), k.Keys.Lead(t.Group)}, args)
	if err != nil {
		return out, err
	}
	r := replyReader{rest: reply}
	out.Led = time.Duration(r.int64()) * time.Millisecond
	var unread error
	out.Sink, unread = k.parseControl(t.Group, pairs(r.strings(r.int())))
	out.Gone = r.strings(r.int())
	for r.err == nil && len(r.rest) > 0 {
		e := RawEntry{ID: r.string(), Attempt: int64(r.int())}
		e.Values = r.strings(r.int())
		out.Entries = append(out.Entries, e)
	}
	return out, errors.Join(unread, r.done(reclaimScript))
}

// Renewal is the result of a lease renewal on one entry.
type Renewal string

// The results of a renewal.
const (
	Ours Renewal = "ours"
	Lost Renewal = "lost" // another consumer has it, or it was acked
	Gone Renewal = "gone" // the entry was deleted from the stream while it was pending: an incident
)

// Renew renews the lease on entries that are still the consumer's. It returns one result for each id.
func (k *Shard) Renew(ctx context.Context, group, consumer string, ids []string) ([]Renewal, error) {
	args := []any{group, consumer}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := k.run(ctx, renewScript, []string{k.Keys.Events()}, args)
	if err != nil {
		return nil, err
	}
	out := make([]Renewal, len(reply))
	for i, r := range reply {
		out[i] = Renewal(r)
	}
	if len(out) != len(ids) {
		return nil, fmt.Errorf("script renew answered %d strings for %d ids", len(out), len(ids))
	}
	return out, nil
}

// Stay is the level that leaves an entry with the worker; only its count of attempts changes.
const Stay = -1

// Parking is one entry to hand to the parking consumer of a level.
type Parking struct {
	ID string
	// Level is the level of the parking consumer, or Stay.
	Level int64
	// Attempts is the number of attempts that the entry keeps. The next delivery adds one.
	Attempts int64
}

// Park hands entries to parking consumers if they are still the worker's own. It returns how many it handed over.
func (k *Shard) Park(ctx context.Context, group, consumer string, entries []Parking) (int, error) {
	args := []any{group, consumer}
	for _, p := range entries {
		level := strconv.FormatInt(p.Level, 10)
		if p.Level == Stay {
			level = "stay"
		}
		args = append(args, p.ID, level, p.Attempts)
	}
	reply, err := k.run(ctx, parkScript, []string{k.Keys.Events()}, args)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range reply {
		if r == "parked" {
			n++
		}
	}
	return n, nil
}

// RemoveIdleConsumers removes the group's consumers that have nothing pending and were idle for at least idle. It
// keeps the consumer that calls, and the parking consumers. It returns the names of the removed ones.
func (k *Shard) RemoveIdleConsumers(ctx context.Context, group, consumer string, idle time.Duration) ([]string, error) {
	return k.run(ctx, removeIdleConsumersScript, []string{k.Keys.Events()}, []any{group, consumer, idle.Milliseconds()})
}

// replyReader reads a flat reply, part by part.
type replyReader struct {
	rest []string
	err  error
}

var errShortReply = errors.New("the reply is too short")

func (r *replyReader) string() string {
	if len(r.rest) == 0 {
		r.err = errors.Join(r.err, errShortReply)
		return ""
	}
	s := r.rest[0]
	r.rest = r.rest[1:]
	return s
}

func (r *replyReader) strings(n int) []string {
	if n < 0 || n > len(r.rest) {
		r.err = errors.Join(r.err, errShortReply)
		return nil
	}
	s := r.rest[:n:n]
	r.rest = r.rest[n:]
	return s
}

func (r *replyReader) int64() int64 {
	n, err := strconv.ParseInt(r.string(), 10, 64)
	r.err = errors.Join(r.err, err)
	return n
}

func (r *replyReader) int() int { return int(r.int64()) }

func (r *replyReader) done(s *script) error {
	if r.err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "script %s returned a reply that can't be read: %w", s.name, r.err)
	}
	return nil
}
