package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/metrics"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// exportState lets the process tell how the deployment stands. counts, if not nil, names the campaigns to tell of.
func (a *App) exportState(counts *metrics.GrabCounts) {
	cfg := a.Config.Ops
	a.measures.set.State(metrics.Poll{Every: cfg.Poll, Timeout: cfg.PollTimeout,
		Ask: func(ctx context.Context) (*metrics.State, error) {
			var campaigns []string
			if counts != nil {
				campaigns = counts.Seen(cfg.Campaigns)
			}
			return a.state(ctx, campaigns)
		}})
}

// asksAtOnce bounds how many shards are asked at once.
const asksAtOnce = 8

// state asks Redis how the deployment stands.
func (a *App) state(ctx context.Context, campaigns []string) (*metrics.State, error) {
	out := &metrics.State{Sinks: make([]metrics.SinkState, len(a.Config.Deployment.Sinks))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(asksAtOnce)
	var mu sync.Mutex
	g.Go(func() error { return a.servers(ctx, out) })
	g.Go(func() error {
		left, err := shards.Left(ctx, a.redis, a.space, campaigns)
		for _, id := range slices.Sorted(maps.Keys(left)) {
			out.Campaigns = append(out.Campaigns, metrics.CampaignState{ID: id, Left: left[id]})
		}
		return err
	})
	g.Go(func() error {
		last, found, err := shards.LastAudit(ctx, a.redis, a.space)
		if found {
			out.Audit = &metrics.AuditState{Started: last.Started, Differences: last.Differences}
		}
		return err
	})
	workers := make([]map[string]bool, len(out.Sinks))
	for i, sink := range a.Config.Deployment.Sinks {
		s := &out.Sinks[i]
		s.Sink, workers[i] = sink, map[string]bool{}
		for shard := range a.space.Len() {
			g.Go(func() error {
				stands, err := shards.Of(a.redis, a.space.Shard(shard)).Status(ctx, sink)
				if errors.Is(err, shards.ErrFrozen) || err != nil && !hongbao.IsOutage(err) && ctx.Err() == nil {
					// Redis does not have the shard; or the shard has an entry that this build can't read. Other metrics tell of
					// both; the rest of the state is good.
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				a.add(s, shard, &stands, workers[i])
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range out.Sinks {
		out.Sinks[i].Workers = len(workers[i])
	}
	return out, nil
}

// add adds how a sink stands on a shard.
func (a *App) add(s *metrics.SinkState, shard int, g *shards.GroupStatus, workers map[string]bool) {
	one := metrics.SinkShard{Shard: shard, Lag: g.Waiting, Dead: g.Dead, Claims: g.Claims, Unread: g.Unread, Oldest: g.Oldest}
	s.Paused = s.Paused || g.Control.Paused
	for _, w := range g.Workers {
		one.Pending += w.Holds
		if w.Seen < a.Config.Consumer.Lease {
			workers[w.Name] = true
		}
	}
	s.Shards = append(s.Shards, one)
	for len(s.Parked) < max(1, len(g.ParkedAt)) {
		s.Parked = append(s.Parked, 0)
	}
	for level, n := range g.ParkedAt {
		s.Parked[level] += n
	}
}

// servers asks each server of Redis for itself and for its shards.
func (a *App) servers(ctx context.Context, out *metrics.State) error {
	looks, err := shards.LookAt(ctx, a.redis, a.space)
	for i := range looks {
		l := &looks[i]
		out.Servers = append(out.Servers, metrics.ServerState{Server: l.Address, Memory: l.Server.Memory,
			MaxMemory: l.Server.MaxMemory, AppendOnly: l.Server.AppendOnly, WritesOK: !l.Server.WritesFail,
			Noevicts: l.Server.MaxMemoryPolicy == shards.NoEviction, Replicas: l.Server.Replicas})
		for _, s := range l.Shards {
			out.Shards = append(out.Shards, metrics.ShardState{Shard: s.Shard, Open: s.Open, Events: s.Seq})
		}
	}
	slices.SortFunc(out.Shards, func(x, y metrics.ShardState) int { return cmp.Compare(x.Shard, y.Shard) })
	return err
}
