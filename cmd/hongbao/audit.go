package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/publisher"
)

func auditCmd() *cobra.Command {
	var opts audit.Options
	seal := false
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare Redis, the ledger and the topic, and name every difference",
		Long: "Compares: funded = granted + left + refunded, in Redis and in the ledger; the same set of grants in Redis, the\n" +
			"ledger and the topic, each once; seqs without a gap. With settlement.kind=remote the remote is asked for every grant\n" +
			"besides, if it can be asked. It only reads, unless --seal is given. Exit code 0 if all agrees; 3 if anything differs, or if\n" +
			"grants wait for a sink and none of its workers lives.",
		Example: "  hongbao audit\n  hongbao audit --wait 30s --json\n  hongbao audit --campaign spring-rain", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCampaigns(opts.Campaigns...); err != nil {
				return err
			}
			if opts.Wait < 0 {
				return usage("--wait %s: give 0s or more", opts.Wait)
			}
			return with(cmd, needs{redis: true}, func(d *deps) error {
				report, err := d.audit(cmd.Context(), opts)
				if err != nil {
					return err
				}
				if seal {
					err = d.seal(cmd.Context(), report)
				}
				err = errors.Join(printAnswer(cmd, report, report.Write), err)
				if err == nil && report.Verdict != audit.Agrees {
					err = found("the audit found differences")
				}
				if err != nil || report.Quiet {
					return err
				}
				s, err := d.status(cmd.Context())
				if err != nil {
					return err
				}
				return s.deserted()
			})
		},
	}
	cmd.Flags().DurationVar(&opts.Wait, "wait", 0, "wait this long at most until nothing is in flight any more")
	cmd.Flags().StringSliceVar(&opts.Campaigns, "campaign", nil, "audit these campaigns only")
	cmd.Flags().BoolVar(&seal, "seal", false, "seal the refunded campaigns that have left Redis, if all agrees: their grants are not read again")
	return cmd
}

// seal seals what the report says that it may.
func (d *deps) seal(ctx context.Context, r *audit.Report) error {
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		if !c.Sealable {
			continue
		}
		if err := d.ledger.Seal(ctx, c.Campaign); err != nil {
			return err
		}
		c.Sealed, c.Sealable = true, false
	}
	return nil
}

// audit audits Redis, which is open, and the sinks that the deployment has.
func (d *deps) audit(ctx context.Context, opts audit.Options) (*audit.Report, error) {
	cfg := audit.Config{Redis: d.redis, Space: d.space, MaxListed: 100}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkBalance) {
		if err := d.openLedger(ctx); err != nil {
			return nil, err
		}
		plans, err := d.plans()
		if err != nil {
			return nil, err
		}
		cfg.Ledger, cfg.LedgerGroup, cfg.Plan, cfg.Codes = auditedLedger{d.ledger}, configs.SinkBalance, plans, d.ledger.Codes
		if d.cfg.Settlement.Kind == configs.SettleRemote {
			if cfg.Remote, err = d.auditedRemote(ctx); err != nil {
				return nil, err
			}
		}
	}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkKafka) {
		p, err := d.publisher(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Topic, cfg.TopicGroup = auditedTopic{p}, configs.SinkKafka
	}
	a, err := audit.New(cfg)
	if err != nil {
		return nil, err
	}
	return a.Run(ctx, opts)
}

// auditedLedger shows the ledger to the audit.
type auditedLedger struct{ *ledger.Ledger }

func (l auditedLedger) Summary(ctx context.Context) (audit.Summary, error) {
	var out audit.Summary
	err := l.EachTotals(ctx, func(t *ledger.Totals) error {
		out.Campaigns = append(out.Campaigns, audit.LedgerCampaign{
			ID: t.Campaign, Currency: t.Currency, Funded: t.Funded, Granted: t.Granted, Refunded: t.Refunded, Open: t.Pool,
			Grants: t.Grants, Closed: t.Closed, CloseShard: t.CloseShard, CloseSeq: t.CloseSeq, By: t.By, Why: t.Why, Codes: t.Codes, Sealed: t.Sealed,
		})
		return nil
	})
	if err != nil {
		return out, err
	}
	// The credits are those that `hongbao balance` books in the same ledger; there are none where it does not run.
	for _, check := range []func(context.Context) ([]ledger.Difference, error){l.CheckConservation, l.CheckCredits} {
		problems, err := check(ctx)
		if err != nil {
			return out, err
		}
		for _, p := range problems {
			out.Problems = append(out.Problems, p.String())
		}
	}
	return out, nil
}

func (l auditedLedger) EachQuarantined(ctx context.Context, fn func(audit.Quarantined) error) error {
	const page = 500
	for after := int64(0); ; {
		list, err := l.QuarantineAll(ctx, after, page)
		if err != nil {
			return err
		}
		for _, q := range list {
			if err := fn(audit.Quarantined{ID: q.ID, Reason: string(q.Reason), Grant: q.Grant, Resolution: q.Resolution}); err != nil {
				return err
			}
			after = q.ID
		}
		if len(list) < page {
			return nil
		}
	}
}

// auditedTopic shows the topic to the audit.
type auditedTopic struct{ *publisher.Publisher }

func (t auditedTopic) Each(ctx context.Context, fn func(partition int, offset int64, g hongbao.Grant) error) (audit.TopicScan, error) {
	r, err := t.Scan(ctx, nil, func(partition int, offset int64, e publisher.Event) error { return fn(partition, offset, e.Grant) })
	return audit.TopicScan{Starts: r.Starts, Foreign: r.Foreign, Malformed: r.Malformed, FirstMalformed: r.FirstMalformed}, err
}
