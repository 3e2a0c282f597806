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

// RawEntry is an undecoded stream entry.
type RawEntry struct {
	ID string
	// Attempt is how often Redis has delivered the entry to the group, including this time.
	Attempt int64
	// Values are its fields and values in order.
	Values []string
}

// ReclaimCall has the arguments of reclaim.lua.
type ReclaimCall struct {
	Group, Consumer string
	Count           int
	Lease           time.Duration
	// Lead is how long the caller keeps the lead, if it gets it.
	Lead time.Duration
	// Backoff has the backoff of parking levels 0, 1, 2, ...; the last element also applies to all higher levels. It
	// must not be empty.
	Backoff []time.Duration
}

// Reclaimed is the reply of reclaim.lua.
type Reclaimed struct {
	// Entries are entries whose worker's lease has ended, and parked entries whose backoff is over. There are none
	// while the sink is paused.
	Entries []RawEntry
	// Gone are the ids of entries that were deleted from the stream while they were pending: an incident.
	Gone []string
	Sink SinkControl
	// Led is 0 if the caller has the lead. Otherwise it is the time until the other worker's lead ends, and there are
	// no entries.
	Led time.Duration
}

// Reclaim assigns entries to the worker: those of dead workers and those whose backoff is over. It also keeps the
// worker's consumer from being removed as idle. If the sink's hash is unreadable, Reclaim returns an error together
// with the entries, which the worker already owns.
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
	Lost Renewal = "lost" // the entry is another consumer's, or acked
	Gone Renewal = "gone" // the entry was deleted from the stream while it was pending: an incident
)

// Renew renews the lease on those entries that the consumer still owns. It returns one result for each id.
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

// Stay as Parking.Level keeps the entry with the worker and only sets its number of attempts.
const Stay = -1

// Parking moves one pending entry to the parking consumer of a level.
type Parking struct {
	ID string
	// Level is the level of the parking consumer, or Stay.
	Level int64
	// Attempts is the number of attempts to record for the entry. The next delivery adds one.
	Attempts int64
}

// Park moves those entries to parking consumers that the worker still owns. It returns how many it moved.
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
// does not remove the given consumer or the parking consumers. It returns the names of the removed consumers.
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
