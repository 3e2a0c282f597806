package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// letters opens the dead letters, and completes the filter.
func (a *App) letters(ctx context.Context, f *replay.LetterFilter) (*replay.Letters, error) {
	if err := a.checkSinks("--sink", f.Sinks...); err != nil {
		return nil, err
	}
	if len(f.Sinks) == 0 {
		f.Sinks = slices.Clone(a.Config.Deployment.Sinks)
	}
	if err := a.openRedis(ctx); err != nil {
		return nil, err
	}
	return replay.NewLetters(replay.LettersConfig{Redis: a.redis, Space: a.space})
}

// LetterPage is a page of dead letters.
type LetterPage struct {
	Letters []replay.Letter `json:"letters"`
	Next    string          `json:"next"` // where the next page begins; empty if there is none
}

// ListLetters lists dead letters, the oldest first within a sink and shard.
func (a *App) ListLetters(ctx context.Context, f replay.LetterFilter, after string, limit int) (p LetterPage,
	err error) {
	letters, err := a.letters(ctx, &f)
	if err != nil {
		return p, err
	}
	if p.Letters, p.Next, err = letters.List(ctx, f, after, limit); err != nil {
		return p, err
	}
	c := newCurrencies(a.currency)
	for i := range p.Letters {
		c.complete(ctx, p.Letters[i].Grant)
	}
	return p, nil
}

// Letter gives a dead letter by its id.
func (a *App) Letter(ctx context.Context, id string) (l replay.Letter, err error) {
	letters, err := a.letters(ctx, &replay.LetterFilter{})
	if err == nil {
		l, err = letters.Get(ctx, id)
	}
	if err == nil {
		newCurrencies(a.currency).complete(ctx, l.Grant)
	}
	return l, err
}

// DropLetters decides that dead letters are not to be delivered, and ends them.
func (a *App) DropLetters(ctx context.Context, pick replay.Pick, who replay.Decider, dryRun bool) (*replay.DeadReport,
	error) {
	letters, err := a.letters(ctx, &pick.Filter)
	if err != nil {
		return nil, err
	}
	return letters.Drop(ctx, pick, who, dryRun)
}

// bySink splits what was picked: each sink has a handler of its own.
func bySink(pick *replay.Pick) []replay.Pick {
	ids := map[string][]string{}
	for _, id := range pick.IDs {
		sink, _, _ := strings.Cut(id, "/")
		ids[sink] = append(ids[sink], id)
	}
	var out []replay.Pick
	for _, sink := range pick.Filter.Sinks {
		one := replay.Pick{IDs: ids[sink], Filter: pick.Filter}
		one.Filter.Sinks = []string{sink}
		if len(pick.IDs) == 0 || len(one.IDs) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// Requeue is a wish to deliver dead letters after all.
type Requeue struct {
	Pick replay.Pick
	By   replay.Decider
	// Rate is grants per second at most, 0 for no bound. Patience is how long a sink that is out of reach is tried again.
	Rate     float64
	Patience time.Duration
	DryRun   bool
}

// Requeue delivers letters sink by sink, to one report; what one sink does does not stop the next.
func (a *App) Requeue(ctx context.Context, o Requeue) (all *replay.DeadReport, err error) {
	letters, err := a.letters(ctx, &o.Pick.Filter)
	if err != nil {
		return nil, err
	}
	for _, p := range bySink(&o.Pick) {
		r, failed := a.requeue(ctx, letters, &o, &p)
		err = errors.Join(err, failed)
		if all == nil {
			all = r
		} else if r != nil {
			all.Add(r)
		}
	}
	return all, err
}

func (a *App) requeue(ctx context.Context, letters *replay.Letters, o *Requeue,
	pick *replay.Pick) (_ *replay.DeadReport, err error) {
	cfg := replay.RequeueConfig{BatchGrants: a.Config.Publisher.BatchGrants, Rate: o.Rate, Patience: o.Patience,
		DryRun: o.DryRun}
	sink := pick.Filter.Sinks[0]
	if sink == configs.SinkKafka {
		claims := a.Config.ClaimsConfig()
		claims.Done = replay.RequeueSink(sink)
		cfg.Handler, err = a.publisherTo(ctx, a.Config.Kafka.Topic, claims, &shards.Reader{Redis: a.redis, Space: a.space})
	} else if a.Config.Settlement.Kind == configs.SettleRemote {
		cfg.Handler, err = a.atRemote(ctx, false, Word{})
	} else {
		cfg.Handler, err = a.handler(ctx, sink)
	}
	if err != nil {
		return nil, err
	}
	report, err := letters.Requeue(ctx, cfg, *pick, o.By)
	if err == nil && report.Failed > 0 {
		err = Found("sink %s refused %d letters again, they stay: mend what the report names, then requeue or drop them",
			sink, report.Failed)
	}
	if err == nil && report.Unreadable > 0 && len(pick.IDs) > 0 {
		err = Found("sink %s: %d of the letters named can't be delivered: `hongbao dead drop` ends them", sink,
			report.Unreadable)
	}
	return report, err
}
