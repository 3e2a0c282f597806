package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/shards"
)

func statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Tell how far each sink is: what waits, what is parked or dead, and which workers live",
		Long: "Tells, for each sink and shard, how many grants and closes wait and since when, how many entries are parked for another attempt and\n" +
			"how many dead letters there are; and for each worker when Redis last heard of it and how many entries it holds. It only reads.\n" +
			"Exit code 3 if grants wait for a sink and none of its workers lives.",
		Example: "  hongbao status\n  hongbao status --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{redis: true}, func(d *deps) error {
				s, err := d.status(cmd.Context())
				if err != nil {
					return err
				}
				if err := printAnswer(cmd, s, s.write); err != nil {
					return err
				}
				return s.deserted()
			})
		},
	}
}

// status is how all sinks stand.
type status struct {
	Sinks []sinkStatus `json:"sinks"`
}

type sinkStatus struct {
	Sink string `json:"sink"`
	// Waiting counts grants and closes that the sink has not finished; Oldest is how long the first of them has waited.
	Waiting int64         `json:"waiting"`
	Oldest  float64       `json:"oldest_seconds"`
	Parked  int64         `json:"parked_entries"`
	Dead    int64         `json:"dead_letters"`
	Shards  []shardStatus `json:"shards"`
	Workers []sinkWorking `json:"workers"`
}

type shardStatus struct {
	Shard   int     `json:"shard"`
	Seq     int64   `json:"seq"`
	Waiting int64   `json:"waiting"`
	Oldest  float64 `json:"oldest_seconds"`
	Parked  int64   `json:"parked_entries"`
	Dead    int64   `json:"dead_letters"`
}

// sinkWorking is a worker of a sink, on all of its shards.
type sinkWorking struct {
	Worker string `json:"worker"`
	// Alive: its lease on what it holds is not over.
	Alive bool    `json:"alive"`
	Seen  float64 `json:"seen_seconds_ago"`
	Holds int64   `json:"holds_entries"`
}

// status asks Redis how every sink stands.
func (d *deps) status(ctx context.Context) (*status, error) {
	out := &status{}
	for _, sink := range d.cfg.Deployment.Sinks {
		s := sinkStatus{Sink: sink, Shards: []shardStatus{}, Workers: []sinkWorking{}}
		workers := map[string]shards.Worker{}
		for i := range d.space.Len() {
			g, err := shards.Of(d.redis, d.space.Shard(i)).Status(ctx, sink)
			if err != nil {
				return nil, fmt.Errorf("status of sink %s on shard %d: %w", sink, i, err)
			}
			s.add(i, &g)
			for _, w := range g.Workers {
				if seen, ok := workers[w.Name]; ok {
					w.Seen, w.Holds = min(w.Seen, seen.Seen), w.Holds+seen.Holds
				}
				workers[w.Name] = w
			}
		}
		for _, name := range slices.Sorted(maps.Keys(workers)) {
			w := workers[name]
			s.Workers = append(s.Workers, sinkWorking{name, w.Seen < d.cfg.Consumer.Lease, w.Seen.Seconds(), w.Holds})
		}
		out.Sinks = append(out.Sinks, s)
	}
	return out, nil
}

func (s *sinkStatus) add(shard int, g *shards.GroupStatus) {
	s.Shards = append(s.Shards, shardStatus{shard, g.Seq, g.Waiting, g.Oldest.Seconds(), g.Parked, g.Dead})
	s.Waiting += g.Waiting
	s.Oldest = max(s.Oldest, g.Oldest.Seconds())
	s.Parked += g.Parked
	s.Dead += g.Dead
}

// deserted is an error that names the sinks for which grants wait although none of their workers lives.
func (s *status) deserted() error {
	var sinks []string
	for i := range s.Sinks {
		x := &s.Sinks[i]
		if x.Waiting > 0 && !slices.ContainsFunc(x.Workers, func(w sinkWorking) bool { return w.Alive }) {
			sinks = append(sinks, fmt.Sprintf("%d for sink %s", x.Waiting, x.Sink))
		}
	}
	if len(sinks) == 0 {
		return nil
	}
	return found("grants wait, %s, and no worker lives: start `hongbao work`", strings.Join(sinks, ", "))
}

func (s *status) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SINK\tSHARD\tSEQ\tWAITING\tSINCE\tPARKED\tDEAD")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Shards {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%d\t%d\n", s.Sinks[i].Sink, x.Shard, x.Seq, x.Waiting, seconds(x.Oldest), x.Parked, x.Dead)
		}
	}
	fmt.Fprintln(t, "\nSINK\tWORKER\tSEEN\tHOLDS\t")
	for i := range s.Sinks {
		for _, x := range s.Sinks[i].Workers {
			note := ""
			if !x.Alive {
				note = "not alive: another worker takes over what it holds"
			}
			fmt.Fprintf(t, "%s\t%s\t%s ago\t%d\t%s\n", s.Sinks[i].Sink, x.Worker, seconds(x.Seen), x.Holds, note)
		}
	}
	return t.Flush()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
