package deliveries

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/sinks"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/topic"
)

// Replay is a request to deliver grants again.
type Replay struct {
	Name string
	// To is the name of a sink, or topic:OTHER for another topic.
	To     string
	Filter replay.Filter
	// Dead is a sink whose dead letters are delivered to the target. The letters are not resolved.
	Dead string
	// Missing requires sink balance or kafka as the target. Of sink kafka, the replay first reads the topic. Then it
	// publishes the grants that the sink has finished but the topic lacks. Of sink balance, it delivers all grants that
	// the ledger lacks, also from receipts of grants that the sink has finished.
	Missing, DryRun bool
	// Rate is the limit of grants per second. 0 means the sink's own limit, or no limit for another topic. Patience is how
	// long to retry while the target can't be reached.
	Rate     float64
	Patience time.Duration
}

// CheckListed returns an error for a replay to another topic that control.replay_topics does not list. Replays over HTTP
// are checked, because an API key must not give access to every topic that this process may write to.
func (a Deliveries) CheckListed(to string) error {
	topic, other := strings.CutPrefix(to, "topic:")
	if other && topic != a.app.Config.Publisher.Topic && !slices.Contains(a.app.Config.Control.ReplayTopics, topic) {
		return app.Usage("topic %.80q is not in control.replay_topics: add it there, or run `hongbao replay`", topic)
	}
	return nil
}

// Replay delivers grants again. The report is nil if the replay did not begin.
func (a Deliveries) Replay(ctx context.Context, o Replay) (report *model.ReplayReport, err error) {
	do := func(ctx context.Context) error {
		report, err = a.replay(ctx, &o)
		return err
	}
	if o.DryRun {
		err = a.locked(ctx, &o, do)
		return report, err
	}
	e := app.About(ctx, access.Replay, o.Filter.Campaign)
	e.Details = map[string]any{"name": o.Name, "to": o.To}
	err = a.app.Recorded(ctx, e, func(ctx context.Context, e *access.Entry) error {
		err := a.locked(ctx, &o, do)
		if report != nil {
			e.Details["finished"], e.Details["delivered"], e.Details["failed"] = report.Finished, report.Delivered, report.Failed
		}
		return err
	})
	return report, err
}

func (a Deliveries) replay(ctx context.Context, o *Replay) (*model.ReplayReport, error) {
	cfg := replay.Config{
		Store: a.app.Store(), Name: o.Name, Target: o.To, DoneSink: replay.DoneSink(o.Name),
		Parallel: min(a.app.Store().Len(), 8),
		Options:  a.boundsOf(ctx, o.To, o.Rate, o.Patience),
	}
	err := errors.Join(a.replayTo(ctx, &cfg, o), a.someHas(ctx, o.Filter.Campaign, o.To))
	defer sinks.Close(cfg.Handler)
	if err != nil {
		return nil, err
	}
	if a.app.Has(o.To) {
		if cfg.Owed, err = a.Owed(ctx, o.To); err != nil {
			return nil, err
		}
	}
	cfg.Handler = a.app.Watched(o.To, cfg.Handler)
	var looked *app.LongCall
	cfg.Progress = func(r *model.ReplayReport) {
		if looked == nil {
			looked = a.app.LongCall(ctx, "replay "+r.Name, r.Events)
		}
		looked.Set(min(r.Looked, r.Events))
	}
	r, err := replay.New(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if looked != nil {
			looked.End()
		}
	}()
	report, err := r.Run(ctx, replay.Options{Filter: o.Filter, Dead: o.Dead, DryRun: o.DryRun})
	switch {
	case err == nil:
		err = CheckReplayed(report)
	case looked != nil:
		err = looked.Stopped(ctx, err, "run it again under the same name: it continues")
	}
	return report, err
}

// CheckReplayName returns an error if no replay can have this name.
func CheckReplayName(name string) error { return hongbao.CheckCampaignID(replay.DoneSink(name)) }

// CheckReplayed returns an error if some deliveries of a replay have failed.
func CheckReplayed(r *model.ReplayReport) error {
	if r.Failed > 0 {
		return app.NeedsAttention("the replay is not finished: fix the causes that the report names, then run it again")
	}
	return nil
}

// someHas returns an error for a campaign that does not exist. Only a deployment with payments, or a replay of them, reads
// the ledger.
func (a Deliveries) someHas(ctx context.Context, id, to string) error {
	if id == "" || !a.app.Has(configs.SinkBalance) && to != configs.SinkBalance {
		return nil
	}
	return a.app.SomeHas(ctx, id)
}

// replayTo sets the target of a replay: the handler, and the done bits of the events that the target already has.
func (a Deliveries) replayTo(ctx context.Context, cfg *replay.Config, o *Replay) error {
	if o.To == configs.SinkBalance {
		h, err := a.balanceAgain(ctx)
		if err == nil && !o.DryRun {
			err = a.app.LedgerAgrees(ctx)
		}
		if err != nil {
			return err
		}
		cfg.Handler, cfg.Ledger, cfg.Settles, cfg.Sink = h, a.app.Ledger(), true, configs.SinkBalance
		if o.Missing {
			cfg.Target += ", what is missing there"
			cfg.Only, err = a.lacking(ctx)
		}
		return err
	}
	entries := &replay.Entries{Store: a.app.Store()}
	if a.app.Has(configs.SinkBalance) {
		if err := a.app.Ledger().Ready(ctx); err != nil { // fail before anything is recorded or sent
			return err
		}
		cfg.Ledger, entries.Ledger = a.app.Ledger(), a.app.Ledger()
	}
	if a.app.Has(o.To) && o.To != configs.SinkKafka {
		var err error
		cfg.Handler, err = a.app.Handler(ctx, o.To)
		return err
	}
	topic, claims := a.app.Config.Publisher.Topic, a.app.Config.ClaimsConfig()
	if other, ok := strings.CutPrefix(o.To, "topic:"); ok {
		if other == topic {
			return app.Usage("--to topic:%s is this deployment's own topic: use --to kafka, so that no event gets a second copy",
				topic)
		}
		topic, claims = other, replayClaims(claims, cfg.DoneSink)
	} else if o.Missing {
		cfg.Target += ", what is missing there"
		claims.Done = cfg.DoneSink
	} else {
		cfg.DoneSink, cfg.Sink = configs.SinkKafka, configs.SinkKafka
	}
	var lost *replay.Lost
	if o.Missing {
		var err error
		if lost, err = replay.FindLost(ctx, a.app.Store(), configs.SinkKafka); err != nil {
			return err
		}
		cfg.Only = lost.Picks
	}
	p, err := a.app.PublisherTo(ctx, topic, claims, entries)
	if err != nil {
		return err
	}
	cfg.Handler, cfg.Marks = p, true
	if cfg.DoneSink != configs.SinkKafka && !o.Missing {
		cfg.Read = func(ctx context.Context, since time.Time, has func(*hongbao.Grant)) error {
			return readTopic(ctx, p.Log, since, has)
		}
	}
	if o.Missing {
		return compareTopic(ctx, lost, p.Log, a.app.Store().Len())
	}
	return nil
}

// readTopic calls has for each grant of this deployment that the topic has got since a time.
func readTopic(ctx context.Context, l *publish.Log, since time.Time, has func(*hongbao.Grant)) error {
	from, _, err := l.Offsets(ctx, since)
	if err != nil {
		return err
	}
	_, err = l.Scan(ctx, from, func(_ publish.Position, e topic.Event) error {
		has(&e.Grant)
		return nil
	})
	return err
}

// replayClaims returns the configuration of the claims of a replay to another topic.
func replayClaims(c store.ClaimsConfig, sink string) store.ClaimsConfig {
	c.Sink, c.Requeues, c.Trimmed = sink, "", false
	return c
}

// balanceAgain returns the handler for a replay to sink balance.
func (a Deliveries) balanceAgain(ctx context.Context) (hongbao.Handler, error) {
	if a.app.Config.Settlement.Kind == configs.SettleRemote {
		return a.app.Remote(ctx, true, app.OperatorDecision{})
	}
	return a.app.Handler(ctx, configs.SinkBalance)
}
