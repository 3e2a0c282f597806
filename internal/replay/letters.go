package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// LettersConfig of Letters.
type LettersConfig struct {
	Redis redis.UniversalClient
	Space *shards.Layout
}

// Letters are the dead letters of a deployment. Nothing but a decision removes one. Its methods may be called at once.
type Letters struct{ source source }

// NewLetters checks the configuration.
func NewLetters(cfg LettersConfig) (*Letters, error) {
	if cfg.Redis == nil || cfg.Space == nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "dead letters: Redis and Space are required")
	}
	return &Letters{source{rdb: cfg.Redis, space: cfg.Space}}, nil
}

// MaxListed bounds the letters that List gives at once.
const MaxListed = 10_000

var errEnough = errors.New("enough")

// List gives up to limit letters that the filter picks, in the order of sinks, shards and time. after is the ID of the
// last letter of the page before, "" for the first page. Next is the ID to go on after; empty if this was the last
// page.
func (l *Letters) List(ctx context.Context, f LetterFilter, after string, limit int) (page []Letter, next string,
	err error) {
	if limit < 1 || limit > MaxListed {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent, "list dead letters: limit %d: want 1 to %d", limit, MaxListed)
	}
	err = l.each(ctx, f, after, func(_ context.Context, letters []Letter) error {
		for i := range letters {
			if len(page) == limit {
				next = page[limit-1].ID
				return errEnough
			}
			page = append(page, letters[i])
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	return page, next, nil
}

// each calls fn for pages of letters that the filter picks, each of one sink and shard.
func (l *Letters) each(ctx context.Context, f LetterFilter, after string,
	fn func(ctx context.Context, letters []Letter) error) error {
	if err := f.check(); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	}
	places, err := l.places(f.Sinks, after)
	for i := 0; i < len(places) && err == nil; i++ {
		p := &places[i]
		var at context.Context
		if at, err = l.source.at(ctx, p.shard); err != nil {
			break
		}
		err = eachLetter(at, &l.source, p.shard, p.sink, p.after, func(page []Letter) error {
			return fn(at, slices.DeleteFunc(page, func(x Letter) bool { return !f.matches(&x) }))
		})
	}
	return err
}

// place is a stream of dead letters, after an id of it.
type place struct {
	sink  string
	shard int
	after string
}

// places lists the streams of the sinks, from the one of a letter on.
func (l *Letters) places(sinks []string, after string) ([]place, error) {
	var all []place
	for _, sink := range sinks {
		for shard := range l.source.space.Len() {
			all = append(all, place{sink: sink, shard: shard})
		}
	}
	if after == "" {
		return all, nil
	}
	sink, shard, id, err := ParseLetterID(after)
	if err != nil {
		return nil, err
	}
	at := slices.Index(all, place{sink: sink, shard: shard})
	if at < 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent,
			"after letter %s: its sink and shard are not among those listed (%s)", after, strings.Join(sinks, ", "))
	}
	all[at].after = id
	return all[at:], nil
}

// placeOf tells where the letter with that ID is, if it is there.
func (l *Letters) placeOf(id string) (sink string, shard int, stream string, err error) {
	sink, shard, stream, err = ParseLetterID(id)
	if err == nil && shard >= l.source.space.Len() {
		err = hongbao.Errorf(hongbao.ClassPermanent, "letter %s: the deployment has shards 0 to %d", id,
			l.source.space.Len()-1)
	}
	return sink, shard, stream, err
}

// Get gives a letter by its ID.
func (l *Letters) Get(ctx context.Context, id string) (Letter, error) {
	sink, shard, stream, err := l.placeOf(id)
	if err != nil {
		return Letter{}, err
	}
	raw, err := shards.Of(l.source.rdb, l.source.space.Shard(shard)).Letters(ctx, sink, stream, stream, 1)
	if err != nil {
		return Letter{}, err
	}
	if len(raw) == 0 {
		return Letter{}, hongbao.Errorf(hongbao.ClassPermanent,
			"letter %s: %w; `hongbao dead list` shows those that are there", id, ErrNoLetter)
	}
	return parseLetter(sink, shard, &raw[0]), nil
}

// ErrNoLetter says that there is no such dead letter: it was decided, or never was.
var ErrNoLetter = errors.New("no_such_dead_letter")

// Decider is who decides about dead letters, and why. Both are kept with the letter.
type Decider struct{ By, Why string }

// MaxWhy bounds Decider.Why, in bytes.
const MaxWhy = 1_000

func (d *Decider) check() error {
	var errs []error
	if err := hongbao.CheckID(d.By); err != nil {
		errs = append(errs, fmt.Errorf("who decides, %.140q: %w", d.By, err))
	}
	if strings.TrimSpace(d.Why) == "" || len(d.Why) > MaxWhy {
		errs = append(errs, fmt.Errorf("why has %d bytes: want a reason of 1 to %d", len(d.Why), MaxWhy))
	}
	return errors.Join(errs...)
}

// Drop decides that letters are not to be delivered: those of ids, or if there are none those that the filter picks.
// They leave the dead letters and stand among the decided ones. A dry run counts only.
func (l *Letters) Drop(ctx context.Context, pick Pick, who Decider, dryRun bool) (*DeadReport, error) {
	r := newDeadReport(shards.Dropped, dryRun)
	if err := who.check(); err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "drop dead letters: %w", err)
	}
	err := l.pages(ctx, pick, func(ctx context.Context, letters []Letter) error {
		r.Matched += int64(len(letters))
		for i := range letters {
			if dryRun {
				break
			}
			if err := l.decide(ctx, &letters[i], shards.Dropped, who, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("drop dead letters: %w", err)
	}
	return r, nil
}

func (l *Letters) decide(ctx context.Context, x *Letter, what string, who Decider, r *DeadReport) error {
	now, err := shards.Of(l.source.rdb, l.source.space.Shard(x.Shard)).ResolveLetter(ctx, &shards.Decision{
		Sink: x.Sink, Letter: x.stream, What: what, By: who.By, Why: who.Why,
	})
	if now {
		r.Decided++
	}
	return err
}

// Pick is which letters to decide: those of IDs, or if there are none those that the filter picks, which must then say
// more than nothing.
type Pick struct {
	IDs    []string
	Filter LetterFilter
}

// pages calls fn for the picked letters, each time some of one sink and shard.
func (l *Letters) pages(ctx context.Context, pick Pick, fn func(ctx context.Context, letters []Letter) error) error {
	if len(pick.IDs) == 0 {
		return l.each(ctx, pick.Filter, "", fn)
	}
	for _, id := range pick.IDs {
		_, shard, _, err := l.placeOf(id)
		if err != nil {
			return err
		}
		at, err := l.source.at(ctx, shard)
		if err != nil {
			return err
		}
		x, err := l.Get(at, id)
		if err != nil {
			return err
		}
		if err := fn(at, []Letter{x}); err != nil {
			return err
		}
	}
	return nil
}

// RequeueSink is the sink whose done bits say which dead letters of a sink were delivered by a requeue. By the sink's
// own bits they are done.
func RequeueSink(sink string) string { return "requeue-" + sink }

// RequeueConfig is how letters are requeued.
type RequeueConfig struct {
	// Handler is the letters' own sink. It must make a second delivery harmless; the publisher needs claims with the
	// sink's name and the done bits of RequeueSink.
	Handler hongbao.Handler
	// BatchGrants, Rate and Patience are those of Config.
	BatchGrants int
	Rate        float64
	Patience    time.Duration
	DryRun      bool
}

// Requeue delivers the grants of letters to their sink, and removes each letter afterwards, with who and why. All
// letters must be of the one sink that the Handler is. Letters that can't be read, or that the sink refuses again,
// stay.
func (l *Letters) Requeue(ctx context.Context, cfg RequeueConfig, pick Pick, who Decider) (*DeadReport, error) {
	r := newDeadReport(shards.Requeued, cfg.DryRun)
	if err := errors.Join(who.check(), cfg.check()); err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "requeue dead letters: %w", err)
	}
	p := newPace(cfg.Rate, cfg.BatchGrants)
	err := l.pages(ctx, pick, func(ctx context.Context, letters []Letter) error {
		all := len(letters)
		readable := slices.DeleteFunc(letters, func(x Letter) bool { return x.Grant == nil })
		r.Matched += int64(all)
		r.Unreadable += int64(all - len(readable))
		if cfg.DryRun {
			return nil
		}
		for batch := range slices.Chunk(readable, p.batch) {
			if err := l.requeue(ctx, &cfg, p, batch, who, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("requeue dead letters: %w; run it again to go on", err)
	}
	return r, nil
}

func (c *RequeueConfig) check() error {
	return errors.Join(checkDelivery(c.Handler, c.BatchGrants, c.Rate, c.Patience)...)
}

// requeue delivers letters of one sink and shard.
func (l *Letters) requeue(ctx context.Context, cfg *RequeueConfig, p *pace, letters []Letter, who Decider,
	r *DeadReport) error {
	grants := make([]hongbao.Grant, len(letters))
	for i := range letters {
		grants[i] = *letters[i].Grant
	}
	find := func(g *hongbao.Grant) []*Letter {
		var found []*Letter
		for i := range letters {
			if *letters[i].Grant == *g {
				found = append(found, &letters[i])
			}
		}
		return found
	}
	d := deliverer{handler: cfg.Handler, pace: p, patience: cfg.Patience,
		done: func(ctx context.Context, done []hongbao.Grant) error {
			for i := range done {
				for _, x := range find(&done[i]) {
					if err := l.decide(ctx, x, shards.Requeued, who, r); err != nil {
						return err
					}
				}
			}
			return nil
		},
		failed: func(g *hongbao.Grant, err error) {
			if r.Failed++; len(r.Failures) < maxFailures {
				r.Failures = append(r.Failures, failureOf(find(g)[0].ID, g, err))
			}
		}}
	return d.deliver(ctx, grants)
}

// DeadReport is what came of deciding about letters.
type DeadReport struct {
	Decision string `json:"decision"`
	DryRun   bool   `json:"dry_run"`
	// Matched letters were picked; Decided of them are requeued or dropped now; Unreadable ones can't be requeued; Failed
	// ones were refused by the sink again. A letter that somebody else decided meanwhile is in none of the latter.
	Matched    int64     `json:"matched"`
	Decided    int64     `json:"decided"`
	Unreadable int64     `json:"unreadable"`
	Failed     int64     `json:"failed"`
	Failures   []Failure `json:"failures"`
}

func newDeadReport(what string, dryRun bool) *DeadReport {
	return &DeadReport{Decision: what, DryRun: dryRun, Failures: []Failure{}}
}

// Add counts another report, of another sink, into this one.
func (r *DeadReport) Add(o *DeadReport) {
	r.Matched += o.Matched
	r.Decided += o.Decided
	r.Unreadable += o.Unreadable
	r.Failed += o.Failed
	r.Failures = append(r.Failures, o.Failures...)
}

// Write prints the report for a person.
func (r *DeadReport) Write(w io.Writer) error {
	var b strings.Builder
	if r.DryRun {
		fmt.Fprintf(&b, "Dry run: nothing was written. %d letters would be %s.\n", r.Matched-r.Unreadable, r.Decision)
	} else {
		fmt.Fprintf(&b, "%d of %d letters were %s.\n", r.Decided, r.Matched, r.Decision)
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(&b, "%d can't be read, so there is nothing to deliver: look at them with `hongbao dead show`, then drop "+
			"them.\n", r.Unreadable)
	}
	writeFailures(&b, r.Failures, r.Failed)
	_, err := io.WriteString(w, b.String())
	return err
}
