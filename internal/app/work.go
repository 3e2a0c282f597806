package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

// Work runs a worker of each sink, of all if none is named, the trimmer and the retirer, until ctx ends.
func (a *App) Work(ctx context.Context, sinks []string) error {
	if len(sinks) == 0 {
		sinks = a.Config.Deployment.Sinks
	}
	for i, s := range sinks {
		if slices.Contains(sinks[:i], s) {
			return Usage("--sink %.40q is given twice", s)
		}
	}
	if err := a.checkSinks("--sink", sinks...); err != nil {
		return err
	}
	if a.Config.Work.OpsListen != "" {
		a.measure("work")
	}
	if err := a.trace(ctx, "work", 0); err != nil {
		return err
	}
	if err := a.Await(ctx, "work"); err != nil || ctx.Err() != nil {
		return err
	}
	parts, err := a.parts(sinks)
	if err != nil {
		return err
	}
	return group.Run(ctx, parts...)
}

// parts makes what all sinks need. Redis is open.
func (a *App) parts(sinks []string) ([]group.Part, error) {
	reads := a.Config.ReadsClient()
	a.atEnd(reads.Close)
	tc := a.Config.TrimmerConfig()
	tc.Redis, tc.Space, tc.Log = a.redis, a.store.Space(), a.log
	trimmer, err := consumer.NewTrimmer(tc)
	if err != nil {
		return nil, err
	}
	retirer, err := a.retirer()
	if err != nil {
		return nil, err
	}
	filters, err := a.filters()
	if err != nil {
		return nil, err
	}
	frozen := make(chan int, a.store.Len())
	parts := []group.Part{
		{Name: "watch", Run: a.watch(frozen).Run}, {Name: "trimmer", Run: trimmer.Run}, {Name: "retirer", Run: retirer.Run},
		{Name: "filters", Run: filters.Run},
		{Name: "recoverer", Run: func(ctx context.Context) error { return a.tendShards(ctx, frozen) }},
	}
	if a.Config.Ledger.DSN != "" {
		parts = append(parts, group.Part{Name: "top-ups", Run: a.dealTopUps})
	}
	if len(a.Config.Unsafe.Allow) > 0 {
		parts = append(parts, group.Part{Name: "unsafe.allow", Run: a.warnOfUnsafe})
	}
	all := make(sinkWorkers, len(sinks))
	for i, sink := range sinks {
		all[i] = newSinkWorker(a, reads, sink)
	}
	if a.measures != nil {
		parts = append([]group.Part{a.workOps(all)}, parts...)
	}
	return append(parts, group.Part{Name: "health", Run: all.tellHealth}, group.Part{Name: "sinks", Run: all.run}), nil
}

// retirer takes refunded campaigns out of Redis.
func (a *App) retirer() (*closing.Retirer, error) {
	locks, err := a.locks()
	if err != nil {
		return nil, err
	}
	cfg := a.Config.Retirer
	cfg.Store, cfg.Locks, cfg.Log = a.store, locks, a.log
	return closing.NewRetirer(cfg)
}

// filters builds the filters of winners that producers want.
func (a *App) filters() (*winners.Builder, error) {
	locks, err := a.locks()
	if err != nil {
		return nil, err
	}
	cfg := knob.Defaults[winners.BuilderConfig]()
	cfg.Store, cfg.Locks, cfg.Log = a.store, locks, a.log
	return winners.NewBuilder(cfg)
}

// handler is what a sink's grants are brought to.
func (a *App) handler(ctx context.Context, sink string) (hongbao.Handler, error) {
	switch sink {
	case configs.SinkKafka:
		p, err := a.publisher(ctx)
		if a.measures != nil && err == nil {
			a.measures.publisher.Store(p)
		}
		return p, err
	case configs.SinkBalance:
		if err := a.ledger.Ready(ctx); err != nil {
			return nil, err
		}
		if a.Config.Settlement.Kind == configs.SettleRemote {
			return a.remote(ctx, false, Word{})
		}
		plans, err := a.plans()
		if err != nil {
			return nil, err
		}
		return a.settler(ctx, plans)
	}
	return nil, fmt.Errorf("sink %q has no handler", sink)
}

// release closes a handler that needs it.
func release(h hongbao.Handler) {
	if c, ok := h.(interface{ Close() }); ok {
		c.Close()
	}
}

// settler settles in the ledger.
func (a *App) settler(ctx context.Context, plans *campaign.Plans) (*ledger.Settler, error) {
	return ledger.NewSettler(ledger.SettlerConfig{Ledger: a.ledger, Plan: plans, Log: a.log, OnQuarantine: a.freeze(ctx)})
}

// freeze pauses a campaign of which a grant went to quarantine.
func (a *App) freeze(ctx context.Context) func(ledger.Quarantined) error {
	return func(q ledger.Quarantined) error {
		return a.pauseFor(ctx, &q.Grant, "a grant is in quarantine, its campaign was paused; `hongbao quarantine list`",
			zap.String("reason", string(q.Reason)))
	}
}

// pauseFor pauses the campaign of a grant that is wrong: something else than Hongbao decides grabs, or Redis went back
// in time, and a person has to look. what names the command that shows the grant.
//
// An error says that Redis is out of reach: the grant comes again, and the campaign is paused then. A campaign that is
// not in Redis has nothing to pause.
func (a *App) pauseFor(ctx context.Context, g *hongbao.Grant, what string, reason zap.Field) error {
	why, _, _ := strings.Cut(what, ";")
	err := a.store.Campaign(g.Campaign).Pause(context.WithoutCancel(ctx), stream.Decision{By: "hongbao", Why: why})
	a.log.Error("ALARM: "+what+" shows it, `hongbao campaign resume` opens the campaign again",
		zap.String("code", "campaign_paused"), zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), reason,
		zap.Error(err))
	if hongbao.IsOutage(err) {
		return err
	}
	return nil
}

// warnOfUnsafe repeats each minute what was switched off.
func (a *App) warnOfUnsafe(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		a.log.Warn("unsafe.allow is set: checks that protect money are switched off",
			zap.Strings("checks", a.Config.Unsafe.Allow))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
