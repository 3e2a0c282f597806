package run

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

// Work runs the workers of the named sinks (of all that this program can open if none is named), the trimmer, the
// retirer and other background parts, until ctx ends.
func Work(ctx context.Context, cfg *configs.Config, sinks []string) (err error) {
	all := len(sinks) == 0
	if all {
		sinks = cfg.Opened()
	}
	if len(sinks) == 0 {
		return app.Usage("deployment.sinks has only sinks of your own, and this program can open none of them: run the command " +
			"`work` of the program that can; docs/sinks.md")
	}
	for i, s := range sinks {
		if slices.Contains(sinks[:i], s) {
			return app.Usage("--sink %.40q is given twice", s)
		}
	}
	p, err := newProcess(cfg, "work", cfg.Work.OpsListen != "")
	if err != nil {
		return err
	}
	defer p.stop(ctx, &err)
	if err := p.CheckSinks("--sink", sinks...); err != nil {
		return err
	}
	for _, s := range cfg.Deployment.Sinks {
		if all && !slices.Contains(sinks, s) {
			p.Log().Info("left out: only its own program delivers to this sink", zap.String("sink", s), zap.String("program", cfg.ProgramOf(s)))
		}
	}
	if err := p.trace(ctx, 0); err != nil {
		return err
	}
	if err := p.await(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	parts, err := p.workParts(sinks)
	if err != nil {
		return err
	}
	return group.Run(ctx, parts...)
}

// workParts returns what a worker runs concurrently: the ops listener, the watch of Redis, the trimmer, the retirer,
// the builder of filters, the recoverer, the top-ups, the warnings about unsafe.allow, the log of the sinks' health,
// and the sinks. The configuration decides whether the ops listener, the top-ups and the warnings are among them. Redis
// must be open.
func (p *process) workParts(sinks []string) ([]group.Part, error) {
	tc := p.Config.TrimmerConfig()
	tc.Deployment, tc.Debts = p.Deployment(), deliveries.Of(p.App).Debts()
	trimmer, err := consumer.NewTrimmer(tc)
	if err != nil {
		return nil, err
	}
	retirer, err := p.retirer()
	if err != nil {
		return nil, err
	}
	filters, err := p.filters()
	if err != nil {
		return nil, err
	}
	frozen := make(chan int, p.Store().Len())
	parts := []group.Part{
		{Name: "watch", Run: p.watch(frozen).Run}, {Name: "trimmer", Run: trimmer.Run}, {Name: "retirer", Run: retirer.Run},
		{Name: "filters", Run: filters.Run},
		{Name: "recoverer", Run: func(ctx context.Context) error { return losses.Of(p.App).OpenFrozenShards(ctx, frozen) }},
	}
	if p.Config.Ledger.DSN != "" {
		parts = append(parts, group.Part{Name: "top-ups", Run: campaigns.Of(p.App).TendTopUps})
	}
	if len(p.Config.Unsafe.Allow) > 0 {
		parts = append(parts, group.Part{Name: "unsafe.allow", Run: p.warnOfUnsafe})
	}
	all := make(sinkWorkers, len(sinks))
	for i, sink := range sinks {
		all[i] = newSinkWorker(p, sink)
	}
	if p.set != nil {
		parts = append([]group.Part{p.workOps(all)}, parts...)
	}
	return append(parts, group.Part{Name: "health", Run: all.logHealth},
		group.Part{Name: "down", Run: all.reportDown}, group.Part{Name: "sinks", Run: all.run}), nil
}

// retirer returns the part that removes refunded campaigns from Redis.
func (p *process) retirer() (*closing.Retirer, error) {
	locks, err := p.Locks()
	if err != nil {
		return nil, err
	}
	cfg := p.Config.Retirer
	cfg.Store, cfg.Locks, cfg.Log = p.Store(), locks, p.Log()
	return closing.NewRetirer(cfg)
}

// filters returns the part that builds the filters of winners, which producers use.
func (p *process) filters() (*winners.Builder, error) {
	locks, err := p.Locks()
	if err != nil {
		return nil, err
	}
	cfg := knob.Defaults[winners.BuilderConfig]()
	cfg.Store, cfg.Locks, cfg.Log = p.Store(), locks, p.Log()
	return winners.NewBuilder(cfg)
}

// warnOfUnsafe logs every minute which safety checks are off.
func (p *process) warnOfUnsafe(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		p.Log().Warn("unsafe.allow is set: checks that protect money are switched off",
			zap.Strings("checks", p.Config.Unsafe.Allow))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch returns a watch of the Redis servers. It raises an alarm if a server has lost data or a setting that protects
// data. It reports frozen shards to the recoverer every second.
func (p *process) watch(frozen chan<- int) *store.Watch {
	return &store.Watch{Store: p.Store(), Alarm: func(code string, err error) {
		p.Log().Error("ALARM: Redis", zap.String("code", code), zap.Error(err))
	}, Frozen: func(shard int) {
		select {
		case frozen <- shard:
		default: // the recoverer is busy; the watch reports the shard again
		}
	}}
}

// workOps sets up the metrics of a worker's sinks and returns its ops listener. The worker is ready once it has opened
// all its sinks, and stays ready.
func (p *process) workOps(all sinkWorkers) group.Part {
	sinks := p.set.Sinks()
	for _, w := range all {
		w.measured = sinks
		sinks.Tally(w.config.Group, w.tally)
	}
	p.set.Publisher(all.published)
	p.exportState()
	return p.opsPart(all.ready)
}
