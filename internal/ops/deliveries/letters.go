package deliveries

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/sinks"
)

// Letters connects to Redis and returns the dead letters. If the filter has no sinks, letters sets all sinks of the
// deployment.
func (a Deliveries) Letters(ctx context.Context, f *deadletter.Filter) (*deadletter.Letters, error) {
	if err := a.app.CheckSinks("--sink", f.Sinks...); err != nil {
		return nil, err
	}
	if len(f.Sinks) == 0 {
		f.Sinks = slices.Clone(a.app.Config.Deployment.Sinks)
	}
	if err := a.app.OpenRedis(ctx); err != nil {
		return nil, err
	}
	return deadletter.New(a.app.Store()), nil
}

// LetterPage is a page of dead letters.
type LetterPage struct {
	Letters []model.Letter `json:"letters" doc:"The letters of this page: by sink and shard, and within a shard the oldest first."`
	Next    optional.Text  `json:"next" nullable:"true" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// ListLetters lists dead letters, the oldest first within a sink and shard.
func (a Deliveries) ListLetters(ctx context.Context, f deadletter.Filter, after string, limit int) (p LetterPage,
	err error) {
	letters, err := a.Letters(ctx, &f)
	if err != nil {
		return p, err
	}
	var next string
	if p.Letters, next, err = letters.List(ctx, f, after, limit); err != nil {
		return p, err
	}
	p.Next = optional.Text(next)
	if p.Letters == nil {
		p.Letters = []model.Letter{} // so that JSON has an empty list, not null
	}
	return p, nil
}

// Letter returns a dead letter by its id.
func (a Deliveries) Letter(ctx context.Context, id string) (l model.Letter, err error) {
	letters, err := a.Letters(ctx, &deadletter.Filter{})
	if err == nil {
		l, err = letters.Get(ctx, id)
	}
	return l, err
}

// DropLetters resolves dead letters without delivering them.
func (a Deliveries) DropLetters(ctx context.Context, pick deadletter.Pick, who stream.Decision, dryRun bool) (*model.LetterReport,
	error) {
	letters, err := a.Letters(ctx, &pick.Filter)
	if err != nil {
		return nil, err
	}
	drop := func(ctx context.Context, p *deadletter.Pick) (*model.LetterReport, error) {
		return letters.Drop(ctx, *p, who, dryRun)
	}
	if dryRun {
		return a.eachSink(ctx, &pick, true, drop)
	}
	if err := letters.CheckExpected(ctx, &pick); err != nil {
		return nil, err
	}
	var report *model.LetterReport
	err = a.app.Recorded(ctx, aboutLetters(ctx, access.DropLetters, &pick, who), func(ctx context.Context, e *access.Entry) error {
		report, err = a.eachSink(ctx, &pick, false, drop)
		resolved(e, report)
		return err
	})
	return report, err
}

// withLettersLock runs do under a lock for the sink's dead letters. Otherwise another process could deliver a letter
// that this process drops. A dry run needs no lock.
func (a Deliveries) withLettersLock(ctx context.Context, sink string, dryRun bool, do func(context.Context) error) error {
	if dryRun {
		return do(ctx)
	}
	locks, err := a.app.Locks()
	if err != nil {
		return err
	}
	began := false
	err = locks.Do(ctx, "letters-"+sink, func(ctx context.Context) error {
		began = true
		return do(ctx)
	})
	if err != nil && !began {
		err = hongbao.Outagef(hongbao.ClassTransient, "sink %s: another process decides dead letters; try again: %w", sink, err)
	}
	return err
}

// eachSink runs do for each sink of pick, and merges the reports. A failing sink does not stop the sinks after it.
func (a Deliveries) eachSink(ctx context.Context, pick *deadletter.Pick, dryRun bool,
	do func(ctx context.Context, p *deadletter.Pick) (*model.LetterReport, error)) (all *model.LetterReport, err error) {
	var next optional.Text
	for _, p := range bySink(pick) {
		var r *model.LetterReport
		failed := a.withLettersLock(ctx, p.Filter.Sinks[0], dryRun, func(ctx context.Context) (err error) {
			r, err = do(ctx, &p)
			return err
		})
		err = errors.Join(err, failed)
		if r == nil { // do was not called
			next = cmp.Or(next, optional.Text(p.Start()))
			continue
		}
		next = cmp.Or(next, r.Next)
		if all == nil {
			all = r
		} else {
			all.Add(r)
		}
	}
	if all != nil {
		all.Next = next // the position in the first unfinished sink
	}
	return all, err
}

func aboutLetters(ctx context.Context, action access.Action, pick *deadletter.Pick, who stream.Decision) access.Entry {
	e := app.About(ctx, action, pick.Filter.Campaign)
	if len(pick.Filter.Sinks) == 1 {
		e.Sink = pick.Filter.Sinks[0]
	}
	e.Details = map[string]any{"by": who.By, "why": who.Why}
	if pick.After != "" {
		e.Details["after"] = pick.After
	}
	if len(pick.IDs) > 0 {
		e.Details["letters"] = pick.IDs[:min(len(pick.IDs), 100)]
	}
	return e
}

// resolved adds the numbers of a report to a journal entry.
func resolved(e *access.Entry, r *model.LetterReport) {
	if r != nil {
		e.Details["matched"], e.Details["resolved"], e.Details["failed"] = r.Matched, r.Resolved, r.Failed
	}
}

// bySink splits pick into one pick per sink, because each sink has its own handler. The first is the sink of
// pick.After.
func bySink(pick *deadletter.Pick) []deadletter.Pick {
	ids := map[string][]string{}
	for _, id := range pick.IDs {
		sink, _, _ := strings.Cut(id, "/")
		ids[sink] = append(ids[sink], id)
	}
	sinks := pick.Filter.Sinks
	first, _, _ := strings.Cut(pick.After, "/")
	sinks = sinks[max(0, slices.Index(sinks, first)):]
	var out []deadletter.Pick
	for _, sink := range sinks {
		one := *pick // the copy includes the expected counts
		one.IDs, one.Filter.Sinks = ids[sink], []string{sink}
		if sink != first {
			one.After = ""
		}
		if len(pick.IDs) == 0 || len(one.IDs) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// Requeue is a request to deliver dead letters again.
type Requeue struct {
	Pick deadletter.Pick
	stream.Decision
	// Rate is the limit of grants per second. 0 means the limit of the sink. Patience is how long to retry while the sink
	// can't be reached.
	Rate     float64
	Patience time.Duration
	DryRun   bool
}

// Requeue delivers dead letters again, sink by sink, and merges the reports. A failing sink does not stop the sinks
// after it.
func (a Deliveries) Requeue(ctx context.Context, o Requeue) (all *model.LetterReport, err error) {
	letters, err := a.Letters(ctx, &o.Pick.Filter)
	if err == nil {
		err = letters.CheckAfter(&o.Pick.Filter, o.Pick.After)
	}
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		return a.requeueAll(ctx, letters, &o)
	}
	if err := letters.CheckExpected(ctx, &o.Pick); err != nil {
		return nil, err
	}
	err = a.app.Recorded(ctx, aboutLetters(ctx, access.RequeueLetters, &o.Pick, o.Decision),
		func(ctx context.Context, e *access.Entry) error {
			all, err = a.requeueAll(ctx, letters, &o)
			resolved(e, all)
			return err
		})
	return all, err
}

func (a Deliveries) requeueAll(ctx context.Context, letters *deadletter.Letters, o *Requeue) (*model.LetterReport, error) {
	return a.eachSink(ctx, &o.Pick, o.DryRun, func(ctx context.Context, p *deadletter.Pick) (*model.LetterReport, error) {
		return a.requeue(ctx, letters, o, p)
	})
}

// sinkBounds returns the batch size and the rate of a sink's workers. The rate is the one that a person has set last,
// or else the configured rate.
func (a Deliveries) sinkBounds(ctx context.Context, sink string) delivery.Options {
	cfg := a.app.Config.ConsumerConfig(sink)
	rate, last := cfg.GrantsPerSecond, SinkLimit{}
	for i := range a.app.Store().Len() { // all shards have the same rate, so a shard that is down does not matter
		if c, err := a.app.Store().Shard(i).Group(sink).Control(ctx); err == nil {
			last.add(&c)
		}
	}
	if last.GrantsPerSecond != nil {
		rate = *last.GrantsPerSecond
	}
	return delivery.Options{BatchGrants: min(a.app.Config.Publisher.BatchGrants, cfg.BatchGrants), Rate: float64(rate)}
}

// boundsOf returns the bounds of a delivery to a sink or to another topic. For a sink these are the sink's bounds. A
// rate above 0 overrides the sink's rate.
func (a Deliveries) boundsOf(ctx context.Context, to string, rate float64, patience time.Duration) delivery.Options {
	o := delivery.Options{BatchGrants: a.app.Config.Publisher.BatchGrants}
	if a.app.Has(to) {
		o = a.sinkBounds(ctx, to)
	}
	if rate > 0 {
		o.Rate = rate
	}
	o.Patience = patience
	return o
}

func (a Deliveries) requeue(ctx context.Context, letters *deadletter.Letters, o *Requeue,
	pick *deadletter.Pick) (_ *model.LetterReport, err error) {
	sink := pick.Filter.Sinks[0]
	to := a.boundsOf(ctx, sink, o.Rate, o.Patience)
	switch {
	case o.DryRun: // a dry run only counts, so it needs no topic and no remote
	case sink == configs.SinkKafka:
		claims := a.app.Config.ClaimsConfig()
		claims.Done = deadletter.RequeueSink(sink)
		to.Handler, err = a.app.PublisherTo(ctx, a.app.Config.Publisher.Topic, claims, a.app.Store())
	default:
		to.Handler, err = a.app.Handler(ctx, sink)
	}
	if err != nil {
		return nil, err
	}
	defer sinks.Close(to.Handler)
	to.Handler = a.app.Watched(sink, to.Handler)
	return letters.Requeue(ctx, to, *pick, o.Decision, o.DryRun)
}
