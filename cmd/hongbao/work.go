package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/group"
	"github.com/hongbao-project/hongbao/settlement"
)

func workCmd() *cobra.Command {
	var sinks []string
	cmd := &cobra.Command{
		Use: "work", Short: "Bring grants to the sinks: balance (the ledger) and kafka (the topic)",
		Long: "Runs a worker of each sink until SIGTERM or SIGINT, then drains: it takes no more, finishes what is in flight, and hands the\n" +
			"rest to the other workers. Run as many as you like; each sink has its own consumer group.",
		Example: "  hongbao work --config configs/production.yaml\n  hongbao work --sink balance", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			d, err := open(cmd)
			if err != nil {
				return err
			}
			defer d.close(&err)
			if len(sinks) == 0 {
				sinks = d.cfg.Deployment.Sinks
			}
			return d.work(cmd.Context(), sinks)
		},
	}
	cmd.Flags().StringSliceVar(&sinks, "sink", nil, "work for these sinks only; all of deployment.sinks if not given")
	return cmd
}

// work runs a worker of each sink, and the trimmer, until ctx ends.
func (d *deps) work(ctx context.Context, sinks []string) error {
	for i, s := range sinks {
		if slices.Contains(sinks[:i], s) {
			return usage("--sink %.40q is given twice", s)
		}
		if !slices.Contains(d.cfg.Deployment.Sinks, s) {
			return usage("--sink %.40q is not among deployment.sinks (%s)", s, strings.Join(d.cfg.Deployment.Sinks, ", "))
		}
	}
	if err := d.openRedis(ctx); err != nil {
		return err
	}
	reads := d.cfg.ReadsClient()
	d.closes = append(d.closes, reads.Close)
	tc := d.cfg.TrimmerConfig()
	tc.Redis, tc.Space, tc.Log = d.redis, d.space, d.log
	trimmer, err := consumer.NewTrimmer(tc)
	if err != nil {
		return err
	}
	parts := []group.Part{{Name: "trimmer", Run: trimmer.Run}}
	if len(d.cfg.Unsafe.Allow) > 0 {
		parts = append(parts, group.Part{Name: "unsafe.allow", Run: d.warnOfUnsafe})
	}
	for _, sink := range sinks {
		h, err := d.handler(ctx, sink)
		if err != nil {
			return err
		}
		cc := d.cfg.ConsumerConfig(sink)
		cc.Redis, cc.Reads, cc.Space, cc.Consumer, cc.Handler, cc.Log = d.redis, reads, d.space, d.worker, h, d.log
		c, err := consumer.New(cc)
		if err != nil {
			return err
		}
		parts = append(parts, group.Part{Name: sink, Run: c.Run})
	}
	d.log.Info("working", zap.Strings("sinks", sinks), zap.String("worker", d.worker), zap.Int("shards", d.space.Len()))
	return group.Run(ctx, parts...)
}

// handler is what a sink's grants are brought to.
func (d *deps) handler(ctx context.Context, sink string) (hongbao.Handler, error) {
	switch sink {
	case configs.SinkKafka:
		return d.publisher(ctx)
	case configs.SinkBalance:
		if err := d.openLedger(ctx); err != nil {
			return nil, err
		}
		if d.cfg.Settlement.Kind == configs.SettleRemote {
			return d.remote()
		}
		plans, err := d.plans()
		if err != nil {
			return nil, err
		}
		return settlement.NewSettler(settlement.SettlerConfig{Ledger: d.ledger, Plan: plans, Log: d.log, OnQuarantine: d.freeze(ctx)})
	}
	return nil, fmt.Errorf("sink %q has no handler", sink)
}

// freeze pauses a campaign of which a grant went to quarantine: something else than Hongbao decides grabs, or Redis went
// back in time, and a person has to look.
func (d *deps) freeze(ctx context.Context) func(settlement.Quarantined) {
	return func(q settlement.Quarantined) {
		store, err := d.store()
		if err == nil {
			err = store.Pause(context.WithoutCancel(ctx), q.Grant.Campaign)
		}
		d.log.Error("ALARM: a grant is in quarantine, its campaign was paused; look at it, then resume it",
			zap.String("campaign", q.Grant.Campaign), zap.Int64("packet", q.Grant.Packet), zap.String("reason", string(q.Reason)), zap.Error(err))
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
