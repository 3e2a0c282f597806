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
	parkScript                = newDrainScript("park", "parking")
	removeIdleConsumersScript = newScript("remove_idle_consumers")
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
	// Longest is the longest time for which the workers park an entry.
	Longest time.Duration
}

// Reclaimed is the reply of reclaim.lua.
type Reclaimed struct {
	// Entries are entries whose worker's lease has ended, and parked entries whose time has come. There are none
	// while the sink is paused.
	Entries []RawEntry
	// Gone are the ids of entries that were deleted from the stream while they were pending: an incident.
	Gone []string
	Sink SinkControl
	// Led is 0 if the caller has the lead. Otherwise it is the time until the other worker's lead ends, and there are
	// no entries.
	Led time.Duration
}

// Reclaim assigns entries to the worker: first those of dead workers, then those whose time has come. It also keeps the
// worker's consumer from being removed as idle. If the sink's hash is unreadable, Reclaim returns an error together
// with the entries, which the worker already owns.
func (k *Shard) Reclaim(ctx context.Context, t ReclaimCall) (out Reclaimed, err error) {
	args := []any{t.Group, t.Consumer, t.Count, t.Lease.Milliseconds(), max(1, t.Lead.Milliseconds()), t.Longest.Milliseconds()}
	keys := []string{k.Keys.Events(), k.Keys.Sink(t.Group), k.Keys.Lead(t.Group), k.Keys.SinkCampaigns(t.Group)}
	reply, err := k.run(ctx, reclaimScript, keys, args)
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
func (g Group) Renew(ctx context.Context, consumer string, ids []string) ([]Renewal, error) {
	args := []any{g.name, consumer}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := g.shard.run(ctx, renewScript, []string{g.shard.Keys.Events()}, args)
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

// Parking moves one pending entry to a parking consumer.
type Parking struct {
	ID string
	// Level is how often the entry has failed, for Status, or Stay. On level 0 it does not wait.
	Level int64
	// Wait is how long an entry on a level above 0 waits. Park adds an eighth of it at most.
	Wait time.Duration
	// Campaign, if it is set, replaces Level and Wait: the entry waits until the campaign is no longer paused for the
	// sink.
	Campaign string
	// Attempts is the number of attempts to record for the entry. The next delivery adds one.
	Attempts int64
}

// to returns where the entry goes, for park.lua.
func (p *Parking) to() string {
	switch {
	case p.Campaign != "":
		return "paused/" + p.Campaign
	case p.Level == Stay:
		return "stay"
	case p.Level == 0:
		return "0"
	}
	return fmt.Sprintf("%d %d", p.Level, p.Wait.Milliseconds())
}

// Park moves those entries to parking consumers that the worker still owns. It returns how many it moved.
func (g Group) Park(ctx context.Context, consumer string, entries []Parking) (int, error) {
	args := []any{g.name, consumer}
	for i := range entries {
		args = append(args, entries[i].ID, entries[i].to(), entries[i].Attempts)
	}
	reply, err := g.shard.run(ctx, parkScript, []string{g.shard.Keys.Events()}, args)
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
// does not remove the given consumer. It returns the names of the removed consumers.
func (g Group) RemoveIdleConsumers(ctx context.Context, consumer string, idle time.Duration) ([]string, error) {
	return g.shard.run(ctx, removeIdleConsumersScript, []string{g.shard.Keys.Events()}, []any{g.name, consumer,
		idle.Milliseconds()})
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
