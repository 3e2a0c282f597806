package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/closing"
	"github.com/hongbao-project/hongbao/internal/group"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

func workCmd() *cobra.Command {
	var sinks []string
	cmd := &cobra.Command{
		Use: "work", Short: "Bring grants to the sinks: balance (the ledger, or a remote balance system that it records) and kafka (the topic)",
		Long: "Runs a worker of each sink until SIGTERM or SIGINT, then drains: it takes no more, finishes what is in flight, and hands the\n" +
			"rest to the other workers. Run as many as you like; each sink has its own consumer group.",
		Example: "  hongbao work --config configs/production.yaml\n  hongbao work --sink balance", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{}, func(d *deps) error {
				if len(sinks) == 0 {
					sinks = d.cfg.Deployment.Sinks
				}
				return d.work(cmd.Context(), sinks)
			})
		},
	}
	cmd.Flags().StringSliceVar(&sinks, "sink", nil, "work for these sinks only; all of deployment.sinks if not given")
	return cmd
}

// work runs a worker of each sink, the trimmer and the retirer, until ctx ends.
func (d *deps) work(ctx context.Context, sinks []string) error {
	for i, s := range sinks {
		if slices.Contains(sinks[:i], s) {
			return usage("--sink %.40q is given twice", s)
		}
	}
	if err := d.checkSinks(sinks); err != nil {
		return err
	}
	parts, err := d.parts(ctx, sinks)
	if err != nil && ctx.Err() != nil {
		return nil // told to stop before it had begun
	}
	if err != nil {
		return err
	}
	return group.Run(ctx, parts...)
}

// parts opens what all sinks need.
func (d *deps) parts(ctx context.Context, sinks []string) ([]group.Part, error) {
	if err := d.openRedis(ctx); err != nil {
		return nil, err
	}
	reads := d.cfg.ReadsClient()
	d.atEnd(reads.Close)
	tc := d.cfg.TrimmerConfig()
	tc.Redis, tc.Space, tc.Log = d.redis, d.space, d.log
	trimmer, err := consumer.NewTrimmer(tc)
	if err != nil {
		return nil, err
	}
	retirer, err := d.retirer()
	if err != nil {
		return nil, err
	}
	frozen := make(chan int, d.space.Len())
	parts := []group.Part{
		{Name: "watch", Run: d.watch(frozen).Run}, {Name: "trimmer", Run: trimmer.Run}, {Name: "retirer", Run: retirer.Run},
		{Name: "recoverer", Run: func(ctx context.Context) error { return d.tendShards(ctx, frozen) }},
	}
	if len(d.cfg.Unsafe.Allow) > 0 {
		parts = append(parts, group.Part{Name: "unsafe.allow", Run: d.warnOfUnsafe})
	}
	all := make(sinkWorkers, len(sinks))
	for i, sink := range sinks {
		all[i] = newSinkWorker(d, reads, sink)
	}
	return append(parts, group.Part{Name: "health", Run: all.tellHealth}, group.Part{Name: "sinks", Run: all.run}), nil
}

// retirer takes refunded campaigns out of Redis.
func (d *deps) retirer() (*closing.Retirer, error) {
	locks, err := d.locks()
	if err != nil {
		return nil, err
	}
	cfg := d.cfg.RetirerConfig()
	cfg.Redis, cfg.Space, cfg.Locks, cfg.Log = d.redis, d.space, locks, d.log
	return closing.NewRetirer(cfg)
}

// handler is what a sink's grants are brought to.
func (d *deps) handler(ctx context.Context, sink string) (hongbao.Handler, error) {
	switch sink {
	case configs.SinkKafka:
		return d.publisher(ctx)
	case configs.SinkBalance:
		if d.ledger == nil { // another try may have opened it
			if err := d.openLedger(ctx); err != nil {
				return nil, err
			}
		}
		if d.cfg.Settlement.Kind == configs.SettleRemote {
			h, err := d.remote(ctx, false, told{})
			return &alarmed{h, d}, err
		}
		return d.settler(ctx)
	}
	return nil, fmt.Errorf("sink %q has no handler", sink)
}

// settler settles in the ledger.
func (d *deps) settler(ctx context.Context) (*ledger.Settler, error) {
	plans, err := d.plans()
	if err != nil {
		return nil, err
	}
	return ledger.NewSettler(ledger.SettlerConfig{Ledger: d.ledger, Plan: plans, Log: d.log, OnQuarantine: d.freeze(ctx)})
}

// freeze pauses a campaign of which a grant went to quarantine: something else than Hongbao decides grabs, or Redis went
// back in time, and a person has to look.
//
// Redis being out of reach is an error: the grant comes again, and the campaign is paused then. A campaign that is not in
// Redis has nothing to pause.
func (d *deps) freeze(ctx context.Context) func(ledger.Quarantined) error {
	return func(q ledger.Quarantined) error {
		store, err := d.store()
		if err == nil {
			err = store.Pause(context.WithoutCancel(ctx), q.Grant.Campaign)
		}
		d.log.Error("ALARM: a grant is in quarantine, its campaign was paused; `hongbao quarantine list` shows it, `hongbao campaign resume` opens the campaign again",
			zap.String("code", "campaign_paused"), zap.String("campaign", q.Grant.Campaign), zap.Int64("packet", q.Grant.Packet),
			zap.String("reason", string(q.Reason)), zap.Error(err))
		if hongbao.IsOutage(err) {
			return err
		}
		return nil
	}
}

// warnOfUnsafe repeats each minute what was switched off.
func (d *deps) warnOfUnsafe(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		d.log.Warn("unsafe.allow is set: checks that protect money are switched off", zap.Strings("checks", d.cfg.Unsafe.Allow))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
