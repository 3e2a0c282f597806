package deliveries

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/operate/replay"
)

// ReplayState is the progress of a named replay, as Redis has recorded it. Any process may have run the replay.
type ReplayState struct {
	Name   string        `json:"name" doc:"Name of the replay. No other replay can use this name."`
	Target string        `json:"target" doc:"Target of the replay: 'balance', 'kafka' or topic:NAME."`
	Dead   string        `json:"dead,omitempty" doc:"Name of the sink whose dead letters the replay delivers. Absent if it delivers no dead letters."`
	Filter replay.Filter `json:"filter" doc:"Which grants the replay delivers."`
	Begun  time.Time     `json:"begun" doc:"Time when the replay's first run started."`
	// Events is how many events the replay covers, by their seqs. Looked is how many of these its runs have checked so
	// far.
	Events *int64 `json:"events" doc:"Number of events in the replay's range of seqs. Null until Redis has recorded the replay."`
	Looked int64  `json:"looked" doc:"Number of events in the range that the runs have checked. A replay of dead letters counts only completed shards."`
	// Finished means that a run has reached the end of each shard without a failure.
	Finished bool `json:"finished" doc:"True once a run has reached the end of each shard without a failure."`
}

// What describes the replay for a person: its target, and which grants it covers.
func (s ReplayState) What() string {
	what := s.Target
	if s.Dead != "" {
		what += ", dead letters of " + s.Dead
	}
	if s.Filter.Campaign != "" {
		what += ", campaign " + s.Filter.Campaign
	}
	return what
}

// Replays returns the state of every replay that has begun, sorted by name.
func (a Deliveries) Replays(ctx context.Context) ([]ReplayState, error) {
	found, err := a.app.Store().FindReplays(ctx)
	if err != nil {
		return nil, err
	}
	out := []ReplayState{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		s, err := a.replayState(ctx, name, found[name])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// ReplayState returns the state of one replay, or false if the replay has not begun.
func (a Deliveries) ReplayState(ctx context.Context, name string) (s ReplayState, found bool, err error) {
	var on []int
	for i := range a.app.Store().Len() {
		_, there, err := a.app.Store().Shard(i).LookUpReplay(ctx, name)
		if err != nil {
			return s, false, err
		}
		if there {
			on = append(on, i)
		}
	}
	if len(on) == 0 {
		return s, false, nil
	}
	s, err = a.replayState(ctx, name, on)
	return s, err == nil, err
}

func (a Deliveries) replayState(ctx context.Context, name string, on []int) (ReplayState, error) {
	s := ReplayState{Name: name, Finished: true}
	var events int64
	for _, shard := range on {
		r, found, err := a.app.Store().Shard(shard).LookUpReplay(ctx, name)
		if err != nil {
			return s, err
		}
		if !found { // another process has deleted the record meanwhile
			continue
		}
		var covers replay.Covers
		if err := json.Unmarshal([]byte(r.Covers), &covers); err != nil {
			return s, fmt.Errorf("the record of replay %s on shard %d can't be read: %w", name, shard, err)
		}
		s.Target, s.Dead, s.Filter = covers.Target, covers.Dead, covers.Filter
		if s.Begun.IsZero() || r.Begun.Before(s.Begun) {
			s.Begun = r.Begun
		}
		first := max(1, covers.Filter.Seqs.First)
		all := max(0, r.Last-first+1)
		events += all
		s.Events = &events
		switch {
		case r.Ended:
			s.Looked += all
		case r.Next > first:
			s.Looked += min(r.Next-first, all)
		}
		s.Finished = s.Finished && r.Ended
	}
	return s, nil
}
