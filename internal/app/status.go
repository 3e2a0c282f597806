package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao/internal/shards"
)

// Status is how all sinks stand.
type Status struct {
	Sinks []SinkStatus `json:"sinks"`
}

// SinkStatus is how a sink stands.
type SinkStatus struct {
	Sink string `json:"sink"`
	// Waiting counts grants and closes that the sink has not finished; Oldest is how long the first of them has waited.
	Waiting int64   `json:"waiting"`
	Oldest  float64 `json:"oldest_seconds"`
	// Pending counts the entries that workers hold, and the parked ones.
	Pending int64         `json:"pending_entries"`
	Parked  int64         `json:"parked_entries"`
	Dead    int64         `json:"dead_letters"`
	Pause   SinkPause     `json:"pause"`
	Limit   SinkLimit     `json:"limit"`
	Shards  []ShardStatus `json:"shards"`
	Workers []SinkWorker  `json:"workers"`
}

// ShardStatus is how a sink stands on a shard.
type ShardStatus struct {
	Shard   int     `json:"shard"`
	Seq     int64   `json:"seq"`
	Waiting int64   `json:"waiting"`
	Oldest  float64 `json:"oldest_seconds"`
	Parked  int64   `json:"parked_entries"`
	Dead    int64   `json:"dead_letters"`
}

// SinkWorker is a worker of a sink, on all of its shards.
type SinkWorker struct {
	Worker string `json:"worker"`
	// Alive: its lease on what it holds is not over.
	Alive bool    `json:"alive"`
	Seen  float64 `json:"seen_seconds_ago"`
	Holds int64   `json:"holds_entries"`
}

// Status asks Redis how every sink stands.
func (a *App) Status(ctx context.Context) (*Status, error) {
	sinks, err := a.SinkStates(ctx)
	return &Status{Sinks: sinks}, err
}

// SinkStates asks Redis how every sink stands. It only reads.
func (a *App) SinkStates(ctx context.Context) (out []SinkStatus, err error) {
	for _, sink := range a.Config.Deployment.Sinks {
		s := SinkStatus{Sink: sink, Shards: []ShardStatus{}, Workers: []SinkWorker{}}
		workers := map[string]shards.Worker{}
		for i := range a.space.Len() {
			g, err := shards.Of(a.redis, a.space.Shard(i)).Status(ctx, sink)
			if err != nil {
				return nil, fmt.Errorf("status of sink %s on shard %d: %w", sink, i, err)
			}
			s.add(i, &g)
			for _, w := range g.Workers {
				s.Pending += w.Holds
				if seen, ok := workers[w.Name]; ok {
					w.Seen, w.Holds = min(w.Seen, seen.Seen), w.Holds+seen.Holds
				}
				workers[w.Name] = w
			}
		}
		for _, name := range slices.Sorted(maps.Keys(workers)) {
			w := workers[name]
			s.Workers = append(s.Workers, SinkWorker{name, w.Seen < a.Config.Consumer.Lease, w.Seen.Seconds(), w.Holds})
		}
		out = append(out, s)
	}
	return out, nil
}

func (s *SinkStatus) add(shard int, g *shards.GroupStatus) {
	s.Shards = append(s.Shards, ShardStatus{shard, g.Seq, g.Waiting, g.Oldest.Seconds(), g.Parked, g.Dead})
	s.Waiting += g.Waiting
	s.Oldest = max(s.Oldest, g.Oldest.Seconds())
	s.Pending += g.Parked
	s.Parked += g.Parked
	s.Pause.add(&g.Control)
	s.Limit.add(&g.Control)
	s.Dead += g.Dead
}

// Deserted is an error that names the sinks for which grants wait although none of their workers lives.
func (s *Status) Deserted() error {
	var sinks []string
	for i := range s.Sinks {
		x := &s.Sinks[i]
		if x.Waiting > 0 && !slices.ContainsFunc(x.Workers, func(w SinkWorker) bool { return w.Alive }) {
			sinks = append(sinks, fmt.Sprintf("%d for sink %s", x.Waiting, x.Sink))
		}
	}
	if len(sinks) == 0 {
		return nil
	}
	return Found("grants wait, %s, and no worker lives: start `hongbao work`", strings.Join(sinks, ", "))
}
