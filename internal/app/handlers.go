package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/sinks"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
)

// Handler returns the handler that delivers grants to a sink. The caller closes it with Release.
func (a *App) Handler(ctx context.Context, sink string) (hongbao.Handler, error) {
	switch sink {
	case configs.SinkKafka:
		return a.publisher(ctx)
	case configs.SinkBalance:
		if a.Config.Settlement.Kind == configs.SettleRemote {
			return a.Remote(ctx, false, OperatorDecision{})
		}
		settler, _, err := a.settler(ctx)
		if err != nil {
			return nil, err
		}
		return settler, nil
	}
	h, err := a.openUnread(ctx, sink)
	if err != nil {
		return nil, err
	}
	return a.after(ctx, h)
}

// openUnread opens a sink that can't be read back: a webhook, or a sink of the user's own.
func (a *App) openUnread(ctx context.Context, sink string) (hongbao.Handler, error) {
	switch {
	case a.Config.IsOwn(sink):
		return a.openOwn(ctx, sink)
	case a.Config.IsWebhook(sink):
		return a.newWebhook(sink)
	}
	return nil, fmt.Errorf("sink %q has no handler", sink)
}

// checkUnread returns an error unless a worker could open a sink that can't be read back. It sends nothing.
func (a *App) checkUnread(ctx context.Context, sink string) error {
	h, err := a.openUnread(ctx, sink)
	if err == nil {
		sinks.Close(h)
	}
	return err
}

// openOwn opens a sink of the user's own.
func (a *App) openOwn(ctx context.Context, sink string) (hongbao.Handler, error) {
	open, err := a.Config.OpenOwn(sink)
	if err != nil {
		return nil, err
	}
	h, err := open(ctx)
	if err == nil && h == nil {
		err = hongbao.Errorf(hongbao.ClassBroken, "its function Open has returned no handler and no error")
	}
	if err != nil {
		return nil, fmt.Errorf("open sink %s: %w", sink, err)
	}
	return h, nil
}

// after returns a handler that delivers what sink balance has finished, or else sink kafka. The sink of h can neither be
// fenced nor read back, so it must not get a grant that Redis may lose.
func (a *App) after(ctx context.Context, h hongbao.Handler) (hongbao.Handler, error) {
	after := &sinks.After{Next: h, Patience: sinks.Patience}
	switch {
	case a.Has(configs.SinkBalance):
		if err := a.ledger.Ready(ctx); err != nil {
			sinks.Close(h)
			return nil, err
		}
		after.Sink, after.Settled, after.Replicated = configs.SinkBalance, a.ledger.Settled, a.ledger.Replicated
	case a.Has(configs.SinkKafka):
		after.Sink = configs.SinkKafka
	default: // no sink shows what Redis has lost
		return h, nil
	}
	after.Marks = a.marksOf(after.Sink)
	return after, nil
}

// marksOf returns a function that reads the done bits of a sink.
func (a *App) marksOf(sink string) func(context.Context, int, int64, ...stream.SeqRange) (sinks.Marks, error) {
	return func(ctx context.Context, shard int, epoch int64, events ...stream.SeqRange) (m sinks.Marks, err error) {
		p, err := a.store.Shard(shard).At(epoch).Group(sink).Progress(ctx, events...)
		if err != nil {
			return m, err
		}
		has := func(seq int64) bool {
			return p.Done[slices.IndexFunc(events, func(r stream.SeqRange) bool { return r.Has(seq) })].Has(seq)
		}
		return sinks.Marks{Has: has, Last: p.Seq}, nil
	}
}

// newWebhook returns a webhook without what it waits for.
func (a *App) newWebhook(sink string) (*webhook.Handler, error) {
	if a.Config.Webhooks[sink].Secret == "" {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "sink %s has no secret, which signs its requests: set %s or %[2]s_FILE", sink,
			configs.WebhookSecretEnv(sink))
	}
	cfg := a.Config.WebhookConfig(sink)
	cfg.Campaigns = &campaignSource{app: a}
	h, err := webhook.New(cfg)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "sink %s: %w", sink, err)
	}
	return h, nil
}

// Settler returns a settler for the ledger, and the plans with which it checks grants. It opens the ledger if
// necessary.
func (a *App) settler(ctx context.Context) (*ledger.Settler, *campaign.Plans, error) {
	if err := a.ledger.Ready(ctx); err != nil {
		return nil, nil, err
	}
	plans, err := a.Plans()
	if err != nil {
		return nil, nil, err
	}
	s, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: a.ledger, Plan: plans, Log: a.log, OnQuarantine: a.freeze(ctx)})
	return s, plans, err
}

// freeze returns a function that pauses the campaign of a grant that went to quarantine.
func (a *App) freeze(ctx context.Context) func(model.Quarantined) error {
	return func(q model.Quarantined) error {
		return a.pauseFor(ctx, &q.Grant, "a grant is in quarantine, its campaign was paused; `hongbao quarantine list`",
			zap.String("reason", string(q.Reason)))
	}
}

// pauseFor pauses the campaign of a wrong grant and logs an alarm. The cause is a program other than Hongbao that
// decides grabs, or a Redis that has lost writes. The parameter what is the text of the alarm; the text ends with the
// command that shows the grant.
//
// An error means that Redis can't be reached. The grant is then delivered again later, and pauseFor tries again. A
// campaign that is not in Redis need not be paused.
func (a *App) pauseFor(ctx context.Context, g *hongbao.Grant, what string, reason zap.Field) error {
	why, _, _ := strings.Cut(what, ";")
	_, err := a.store.Campaign(g.Campaign).Pause(context.WithoutCancel(ctx), stream.Decision{By: stream.ByWorker, Why: why})
	a.log.Error("ALARM: "+what+" shows it, `hongbao campaign resume` opens the campaign again",
		zap.String("code", "campaign_paused"), zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), reason,
		zap.Error(err))
	if hongbao.IsOutage(err) {
		return err
	}
	return nil
}

// Watched wraps the handler of a requeue or a replay in the process's hook, if there is one.
func (a *App) Watched(sink string, h hongbao.Handler) hongbao.Handler {
	if a.hooks.Sink == nil {
		return h
	}
	return a.hooks.Sink(sink, h)
}
