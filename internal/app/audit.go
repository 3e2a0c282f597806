package app

import (
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/publish"
	"github.com/hongbao-project/hongbao/topic"
)

// Seal seals what the report says that it may.
func (a *App) Seal(ctx context.Context, r *audit.Report) error {
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		if !c.Sealable {
			continue
		}
		if err := a.ledger.Seal(ctx, c.Campaign); err != nil {
			return err
		}
		c.Sealed, c.Sealable = true, false
	}
	return nil
}

// Audit audits Redis, which is open, and the sinks that the deployment has.
func (a *App) Audit(ctx context.Context, opts audit.Options) (*audit.Report, error) {
	cfg := audit.Config{Redis: a.redis, Space: a.space, MaxListed: 100}
	if slices.Contains(a.Config.Deployment.Sinks, configs.SinkBalance) {
		if err := a.openLedger(ctx); err != nil {
			return nil, err
		}
		plans, err := a.plans()
		if err != nil {
			return nil, err
		}
		cfg.Ledger, cfg.LedgerGroup, cfg.Plan, cfg.Codes = auditedLedger{a.ledger}, configs.SinkBalance, plans, a.ledger.Codes
		if a.Config.Settlement.Kind == configs.SettleRemote {
			if cfg.Remote, err = a.auditedRemote(ctx); err != nil {
				return nil, err
			}
		}
	}
	if slices.Contains(a.Config.Deployment.Sinks, configs.SinkKafka) {
		topic, err := a.openTopic(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Topic, cfg.TopicGroup = auditedTopic{topic}, configs.SinkKafka
	}
	auditor, err := audit.New(cfg)
	if err != nil {
		return nil, err
	}
	return auditor.Run(ctx, opts)
}

// auditedLedger shows the ledger to the audit.
type auditedLedger struct{ *ledger.Ledger }

// Summary sums up each campaign, and says what the ledger finds wrong with itself.
func (l auditedLedger) Summary(ctx context.Context) (audit.Summary, error) {
	var out audit.Summary
	err := l.EachTotals(ctx, func(t *ledger.Totals) error {
		out.Campaigns = append(out.Campaigns, audit.LedgerCampaign{
			ID: t.Campaign, Currency: t.Currency, Funded: t.Funded, Granted: t.Granted, Refunded: t.Refunded, Open: t.Pool,
			Grants: t.Grants, Closed: t.Closed, CloseShard: t.CloseShard, CloseSeq: t.CloseSeq, By: t.By, Why: t.Why,
			Codes: t.Codes, Sealed: t.Sealed,
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

// EachQuarantined calls fn for each grant in quarantine, decided or not.
func (l auditedLedger) EachQuarantined(ctx context.Context, fn func(audit.Quarantined) error) error {
	const page = 500
	for after := int64(0); ; {
		list, err := l.QuarantineAll(ctx, after, page)
		if err != nil {
			return err
		}
		for _, q := range list {
			if err := fn(audit.Quarantined{ID: q.ID, Reason: string(q.Reason), Grant: q.Grant,
				Resolution: q.Resolution}); err != nil {
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
type auditedTopic struct{ *publish.Log }

// Each calls fn for each record of the topic.
func (t auditedTopic) Each(ctx context.Context,
	fn func(partition int, offset int64, g hongbao.Grant) error) (audit.TopicScan, error) {
	r, err := t.Scan(ctx, nil, func(partition int, offset int64,
		e topic.Event) error {
		return fn(partition, offset, e.Grant)
	})
	return audit.TopicScan{Starts: r.Starts, Foreign: r.Foreign, Malformed: r.Malformed, FirstMalformed: r.FirstMalformed},
		err
}
