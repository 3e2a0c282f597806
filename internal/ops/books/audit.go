package books

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/topic"
)

// Seal seals the campaigns that the report marks as sealable, finishes unfinished seals, and then stores where the next
// audit begins to read the topic. It does nothing if the audit found a difference. If a campaign can't be sealed, Seal
// goes on with the next one, returns the errors, and leaves the topic's bases: they need every seal.
func (a Books) Seal(ctx context.Context, r *model.AuditReport) error {
	if r.Verdict != model.Agrees {
		return nil
	}
	var errs []error
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		if !c.Sealable && !c.Unbased {
			continue
		}
		err := a.app.Books().Seal(ctx, c.Campaign)
		if err == nil {
			c.Sealed, c.Sealable = true, false
			continue
		}
		errs = append(errs, err)
		if hongbao.IsOutage(err) || ctx.Err() != nil {
			break
		}
	}
	if len(r.Bases) == 0 || len(errs) > 0 {
		return errors.Join(errs...)
	}
	return a.app.Books().SetTopicBases(ctx, a.app.PublisherConfig().Topic, r.Stored, r.Bases)
}

// AuditOrder is an audit that a person asks for.
type AuditOrder struct {
	audit.Options
	// Seal seals what can be sealed if the audit finds no difference.
	Seal bool
	// Request identifies the request to a server. A repeat has the same one.
	Request string
}

// AuditAndSeal audits, and seals if the order says so. After a failure to seal it returns the report and the error.
func (a Books) AuditAndSeal(ctx context.Context, o *AuditOrder) (*model.AuditReport, error) {
	report, err := a.Audit(ctx, o.Options)
	if err == nil && o.Seal {
		err = a.Seal(ctx, report)
	}
	return report, err
}

// AuditRunsError says that a server of the deployment runs an audit already.
type AuditRunsError struct{ model.RunningAudit }

func (e *AuditRunsError) Error() string {
	return fmt.Sprintf("another audit is running (since %s, started by %s); one runs at a time. Try again when it has ended. "+
		"`hongbao audit last` shows the verdict if it audits all campaigns", e.Since.Format(time.RFC3339), e.By)
}

// AuditAlone is AuditAndSeal for servers. An audit reads all data, so the servers of a deployment run one at a time: if
// there is one already, AuditAlone returns an AuditRunsError. The journal records the audit. The command has its own
// process and asks for no lock: it may have a user of Redis that only reads.
func (a Books) AuditAlone(ctx context.Context, o *AuditOrder) (report *model.AuditReport, err error) {
	locks, err := a.app.Locks()
	if err != nil {
		return nil, err
	}
	mine, err := locks.Try(ctx, a.app.Store().Shard(0), "audit", func(ctx context.Context) error {
		last, err := a.app.Store().Auditing(ctx)
		if err == nil && o.Request != "" && last.Request == o.Request && time.Since(last.Ended) < storedWithin {
			return hongbao.Errorf(hongbao.ClassConflict, "%w", &AuditRunsError{last})
		}
		e := app.About(ctx, access.RunAudit, "")
		running := model.RunningAudit{Since: e.Time, By: e.Who, Request: o.Request}
		if err := a.app.Store().SetAuditing(ctx, running); err != nil { // Redis is full, for example
			a.app.Log().Warn("a request for a second audit will not show who has started this one", zap.Error(err))
		}
		err = a.app.Recorded(ctx, e, func(ctx context.Context, e *access.Entry) (err error) {
			if report, err = a.AuditAndSeal(ctx, o); report != nil {
				e.Details = o.details(report)
			}
			return err
		})
		if err != nil {
			return err
		}
		running.Ended = time.Now()
		if err := a.app.Store().SetAuditing(ctx, running); err != nil {
			a.app.Log().Warn("a repeat of the request may start another audit", zap.Error(err))
		}
		return nil
	})
	if err != nil || mine {
		return report, err
	}
	running, err := a.app.Store().Auditing(ctx)
	if err != nil {
		return nil, err
	}
	return nil, hongbao.Errorf(hongbao.ClassConflict, "%w", &AuditRunsError{running})
}

// storedWithin is the time within which a server has stored the answer of an audit that has ended. Until then, a repeat
// of the request at another server finds neither the lock nor the answer.
const storedWithin = 10 * time.Second

// details returns what the journal has about an audit.
func (o *AuditOrder) details(r *model.AuditReport) map[string]any {
	details := map[string]any{"verdict": r.Verdict, "differences": len(r.Differences)}
	if len(o.Campaigns) > 0 {
		details["campaigns"] = o.Campaigns
	}
	if o.Full {
		details["full"] = true
	}
	if o.Seal {
		details["seal"] = true
	}
	return details
}

// LastAudit is the result of the last audit of all campaigns.
type LastAudit struct {
	// Verdict is "none" if there was no audit yet.
	Verdict     string    `json:"verdict" enum:"agrees,differs,none" doc:"Result of the last audit of all campaigns. 'none' if there was no audit yet."`
	Started     time.Time `json:"started,omitzero" doc:"Time when the audit started. Absent if there was no audit yet."`
	Differences *int64    `json:"differences" doc:"Number of differences of all kinds; null if there was no audit yet."`
}

// LastAudit returns the result of the last audit of all campaigns, by any process.
func (a Books) LastAudit(ctx context.Context) (LastAudit, error) {
	last, found, err := a.app.Store().LastAudit(ctx)
	switch {
	case err != nil || !found:
		return LastAudit{Verdict: "none"}, err
	case last.Differences > 0:
		return LastAudit{string(model.Differs), last.Started.UTC(), &last.Differences}, nil
	}
	return LastAudit{string(model.Agrees), last.Started.UTC(), &last.Differences}, nil
}

// auditedLedger has the methods of a ledger and of its books that an audit reads.
type auditedLedger struct {
	*ledger.Ledger
	books.Books
}

// Audit audits Redis, which must be open, and the sinks of the deployment.
func (a Books) Audit(ctx context.Context, opts audit.Options) (*model.AuditReport, error) {
	cfg := audit.Config{Store: a.app.Store(), MaxListed: 100}
	if a.app.Config.Ledger.DSN != "" {
		cfg.Owed = deliveries.Of(a.app).Owed
	}
	var stored []model.TopicBase
	if a.app.Has(configs.SinkBalance) {
		if err := a.app.SomeHas(ctx, opts.Campaigns...); err != nil {
			return nil, err
		}
		plans, err := a.app.Plans()
		if err != nil {
			return nil, err
		}
		if cfg.Acknowledged, err = a.app.Ledger().Acknowledged(ctx); err != nil {
			return nil, err
		}
		cfg.Ledger = auditedLedger{a.app.Ledger(), a.app.Books()}
		cfg.LedgerGroup, cfg.Plan, cfg.Codes = configs.SinkBalance, plans, a.app.Ledger().Codes
		cfg.AboveLimit = losses.Of(a.app).GrantedAboveLimit
		if a.app.Config.Settlement.Kind == configs.SettleRemote {
			remote, stop, err := a.app.AuditedRemote(ctx)
			if err != nil {
				return nil, err
			}
			defer stop()
			cfg.Remote = remote
		}
	}
	if a.app.Has(configs.SinkKafka) {
		topic, err := a.app.OpenTopic(ctx)
		if err != nil {
			return nil, err
		}
		defer topic.Close()
		cfg.Topic, cfg.TopicGroup = auditedTopic{topic}, configs.SinkKafka
		if cfg.Ledger != nil {
			if stored, err = a.app.Books().TopicBases(ctx, a.app.PublisherConfig().Topic); err != nil {
				return nil, err
			}
		}
		if cfg.Bases, err = a.validBases(ctx, topic, stored); err != nil {
			return nil, err
		}
	}
	cfg.Unread = a.app.Config.UnreadSinks()
	auditing := a.app.LongCall(ctx, "audit", 0)
	defer auditing.End()
	cfg.Step = func(what string) { auditing.Step("audit: " + what) }
	report, err := audit.Run(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	report.Stored = stored
	if len(opts.Campaigns) == 0 {
		a.keepVerdict(ctx, report)
	}
	return report, nil
}

// Acknowledge records that a person knows a difference. Until the given time audits show the difference but do not
// count it.
func (a Books) Acknowledge(ctx context.Context, d *model.Difference, until time.Time, by stream.Decision) (
	out model.Acknowledgement, err error) {
	if out, err = audit.Acknowledge(d); err != nil {
		return out, app.Usage("acknowledge a difference: %w", err)
	}
	out.Until, out.By, out.Why = until.UTC().Truncate(time.Millisecond), by.By, by.Why
	entry := app.About(ctx, access.AcknowledgeDifference, d.Campaign)
	err = a.app.InLedger(ctx, entry, func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"difference": d.String(), "until": out.Until, "by": by.By, "why": by.Why}
		return a.app.Ledger().Acknowledge(ctx, out)
	})
	return out, err
}

// keepVerdict stores the result of an audit of all campaigns, for the metrics and LastAudit. A failure to store it is only logged.
func (a Books) keepVerdict(ctx context.Context, r *model.AuditReport) {
	found := store.Audited{Started: r.Started, DeadLetters: r.Found[audit.DeadLetter]}
	for _, n := range r.Found {
		found.Differences += n
	}
	if err := a.app.Store().SetAudited(ctx, found); err != nil {
		a.app.Log().Warn("the result of the audit could not be stored for the metrics", zap.Error(err))
	}
}

// validBases returns where the audit begins to read the topic; none if it must read the whole topic. If the log ends
// earlier than when the bases were stored, or has another event at their last offset, the topic was created again.
func (a Books) validBases(ctx context.Context, log *publish.Log, stored []model.TopicBase) ([]model.TopicBase, error) {
	if len(stored) != a.app.PublisherConfig().Partitions {
		return nil, nil
	}
	bases := slices.Clone(stored)
	start, end, err := log.Offsets(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	for p := range bases {
		b := &bases[p]
		if b.Next > end[p] {
			return nil, nil
		}
		b.First = max(b.First, start[p])
		if b.Last < start[p] {
			continue
		}
		e, found, err := log.At(ctx, p, b.Last)
		if err != nil || !found || audit.RecordName(&e.Grant) != b.Event {
			return nil, err
		}
	}
	return bases, nil
}

// auditedTopic lets the audit read the topic.
type auditedTopic struct{ *publish.Log }

// Each calls fn for each record of the topic, from the bases on.
func (t auditedTopic) Each(ctx context.Context, bases []model.TopicBase,
	fn func(partition int, offset int64, g hongbao.Grant) error) (audit.TopicScan, error) {
	var from []int64
	for _, b := range bases {
		from = append(from, b.First)
	}
	r, err := t.Scan(ctx, from, func(at publish.Position, e topic.Event) error {
		return fn(at.Partition, at.Offset, e.Grant)
	})
	return audit.TopicScan{Since: r.Since, Next: r.Next, Foreign: r.Foreign, Malformed: r.Malformed, FirstMalformed: r.FirstMalformed},
		err
}
