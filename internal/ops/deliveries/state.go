package deliveries

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/store"
)

// State reads the state of the deployment from Redis, and the unfinished work from the ledger, if there is one.
// The error reports servers that do not answer. Parts that can't be read in time, or not by this build, are missing.
func (a Deliveries) State(ctx context.Context) (*metrics.State, error) {
	out := &metrics.State{}
	var g errgroup.Group // a failure does not cancel the other reads
	var mu sync.Mutex
	var outages []error
	ask := func(what func() error) {
		g.Go(func() error {
			if err := what(); hongbao.IsOutage(err) && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				outages = append(outages, err)
			}
			return nil
		})
	}
	g.Go(func() error { // if the time of ctx is over, Redis counts as down
		if err := a.servers(ctx, out); hongbao.IsOutage(err) || err != nil && ctx.Err() != nil {
			return err
		}
		return nil
	})
	ask(func() error {
		last, found, err := a.app.Store().LastAudit(ctx)
		if found {
			out.Audit = &metrics.AuditState{Started: last.Started, Differences: last.Differences,
				DeadLetters: last.DeadLetters}
		}
		return err
	})
	ask(func() error {
		n, err := a.app.Store().CountJournal(ctx)
		if err == nil {
			out.JournalWaits = &n
		}
		return err
	})
	g.Go(func() error {
		for i, on := range a.standings(ctx) {
			sink, err := a.sinkState(a.app.Config.Deployment.Sinks[i], on)
			out.Sinks = append(out.Sinks, sink)
			mu.Lock()
			outages = append(outages, err)
			mu.Unlock()
		}
		return nil
	})
	if a.app.Config.Ledger.DSN != "" {
		g.Go(func() error {
			out.Ledger = a.unfinished(ctx)
			return nil
		})
		ask(func() error {
			n, err := losses.Of(a.app).UndecidedHoles(ctx)
			if err == nil {
				out.Withheld = &n
			}
			return err
		})
	}
	err := g.Wait()
	return out, errors.Join(append(outages, err)...)
}

// Left reads from Redis how many packets the campaigns have left. The rest of the state is empty.
func (a Deliveries) Left(ctx context.Context, campaigns []string) (*metrics.State, error) {
	out := &metrics.State{}
	left, err := a.app.Store().Left(ctx, campaigns)
	for _, id := range slices.Sorted(maps.Keys(left)) {
		out.Campaigns = append(out.Campaigns, metrics.CampaignState{ID: id, Left: left[id]})
	}
	return out, err
}

// unfinished reads from the ledger what waits for a worker or a person. It returns nil if the ledger does not answer.
func (a Deliveries) unfinished(ctx context.Context) *metrics.LedgerState {
	u, err := a.app.Ledger().Unfinished(ctx)
	if err != nil {
		return nil
	}
	s := &metrics.LedgerState{Paused: u.Paused, Unfinished: map[string]metrics.Backlog{
		"top_ups": metrics.Backlog(u.TopUps), "credits": metrics.Backlog(u.Credits)}}
	if list, err := a.app.Unrefunded(ctx); err == nil {
		var late time.Duration
		if len(list) > 0 {
			late = max(time.Since(list[0].Ends), 0)
		}
		s.Unrefunded = &late
	}
	return s
}

// sinkState sums up the state of a sink on the shards that answered. The error has the outages of the other shards.
func (a Deliveries) sinkState(sink string, on []standing) (metrics.SinkState, error) {
	s := metrics.SinkState{Sink: sink, Rate: a.app.Config.ConsumerConfig(sink).GrantsPerSecond}
	workers, paused := map[string]bool{}, map[string]string{}
	var outages []error
	for shard := range on {
		g := &on[shard]
		if g.outage {
			outages = append(outages, g.err)
		}
		if g.err == nil {
			a.add(&s, shard, &g.GroupStatus, workers)
			for _, c := range g.Campaigns {
				if c.Paused {
					paused[c.Campaign] = c.By
				}
			}
		}
	}
	s.Workers = len(workers)
	for _, by := range paused {
		if by == stream.ByWorker {
			s.PausedByWorker++
		} else {
			s.PausedByPerson++
		}
	}
	return s, errors.Join(outages...)
}

// add adds the state of a sink on one shard to s.
func (a Deliveries) add(s *metrics.SinkState, shard int, g *store.GroupStatus, workers map[string]bool) {
	one := metrics.SinkShard{Shard: shard, Lag: g.Waiting, Dead: g.Dead, Claims: g.Claims, Unread: g.Unread, Oldest: g.Oldest}
	s.Paused = s.Paused || g.Control.Paused
	if g.Control.Rate != nil {
		s.Rate = *g.Control.Rate
	}
	for _, w := range g.Workers {
		one.Pending += w.Holds
		if w.Seen < a.app.Config.Consumer.Lease {
			workers[w.Name] = true
		}
	}
	one.Held = g.Held
	if one.Parked = g.ParkedAt; len(one.Parked) == 0 {
		one.Parked = []int64{0} // level 0 is always reported
	}
	s.Shards = append(s.Shards, one)
}

// servers reads the state of each Redis server and of its shards into out.
func (a Deliveries) servers(ctx context.Context, out *metrics.State) error {
	looks, err := a.app.Store().ServerStates(ctx)
	for i := range looks {
		l := &looks[i]
		out.Servers = append(out.Servers, metrics.ServerState{Server: l.Address, Memory: l.Server.Memory,
			MaxMemory: l.Server.MaxMemory, MachineMemory: l.Server.MachineMemory, AppendOnly: l.Server.AppendOnly,
			WritesOK: !l.Server.WritesFail, Noevicts: l.Server.MaxMemoryPolicy == store.NoEviction, Replicas: l.Server.Replicas,
			RequiredReplicas: cmp.Or(a.app.Config.Producer.Replicas, l.RequiredReplicas)})
		for _, s := range l.Shards {
			out.Shards = append(out.Shards, metrics.ShardState{Shard: s.Shard, Open: s.Open, Events: s.Seq})
		}
	}
	slices.SortFunc(out.Shards, func(x, y metrics.ShardState) int { return cmp.Compare(x.Shard, y.Shard) })
	return err
}
