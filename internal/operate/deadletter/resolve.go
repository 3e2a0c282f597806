package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Pick selects the letters to decide: those of IDs, or without IDs those that the filter selects.
type Pick struct {
	IDs    []string
	Filter Filter
	// After is the Next of a report: the filter selects from the letters after it. If it is empty, it begins with the
	// oldest letter.
	After string
	// Expect is how many letters a person expects the filter to select; nil if they were not asked.
	Expect *int64

	// counted has, for each stream, the last letter that CheckExpected has counted; nil if it has counted none.
	counted map[Place]string
}

// CheckExpected compares the number of letters that a filter selects with the number that the deciding person expects.
// After Pick.After there may be fewer: some are decided already. It then limits the pick to the counted letters, so
// letters that are written later stay.
func (l *Letters) CheckExpected(ctx context.Context, pick *Pick) error {
	if len(pick.IDs) > 0 {
		return nil
	}
	if pick.Expect == nil {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"decide dead letters by a filter: the expected number of letters is missing: a dry run counts them")
	}
	n, counted := int64(0), map[Place]string{}
	all := Pick{Filter: pick.Filter, After: pick.After}
	err := l.each(ctx, &all, func(_ context.Context, letters []Letter, last string) error {
		n += int64(len(letters))
		sink, shard, id, err := ParseID(last)
		counted[Place{sink, shard}] = id
		return err
	})
	pick.counted = counted
	if err == nil && n != *pick.Expect && (pick.After == "" || n > *pick.Expect) {
		err = hongbao.Errorf(hongbao.ClassPermanent,
			"the filter picks %d letters, not the %d expected, and nothing was done: look at them with a dry run", n,
			*pick.Expect)
	}
	return err
}

// Start returns where the work begins: the first value of Report.Next.
func (p *Pick) Start() string {
	if p.After != "" || len(p.IDs) > 0 || len(p.Filter.Sinks) == 0 {
		return p.After
	}
	return p.Filter.Sinks[0] + "/0/0-0" // before all letters of the first shard
}

// pages calls fn for the selected letters, each time for some of one sink and shard. It sets r.Next to where a
// following call begins, and leaves it empty once all are done.
func (l *Letters) pages(ctx context.Context, pick Pick, r *Report,
	fn func(ctx context.Context, letters []Letter) error) error {
	r.Next = answers.Text(pick.Start())
	if len(pick.IDs) == 0 {
		err := l.each(ctx, &pick, func(ctx context.Context, letters []Letter, last string) error {
			err := fn(ctx, letters)
			if err == nil {
				r.passed(last)
			}
			return err
		})
		if err == nil {
			r.Next = ""
		}
		return err
	}
	for _, id := range pick.IDs {
		_, shard, _, err := l.placeOf(id)
		if err != nil {
			return err
		}
		at, err := l.at(ctx, shard)
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

// Drop decides that the selected letters are never to be delivered. They move from the dead letters to the decided
// ones. A dry run only counts.
func (l *Letters) Drop(ctx context.Context, pick Pick, who stream.Decision, dryRun bool) (*Report, error) {
	r := newReport(store.Dropped, dryRun)
	if err := who.Check(); err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "drop dead letters: %w", err)
	}
	err := l.pages(ctx, pick, r, func(ctx context.Context, letters []Letter) error {
		r.Matched += int64(len(letters))
		for i := range letters {
			if dryRun {
				break
			}
			if err := l.resolve(ctx, &letters[i], who, r); err != nil {
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

// resolve ends a letter as the report says.
func (l *Letters) resolve(ctx context.Context, x *Letter, who stream.Decision, r *Report) error {
	now, err := l.store.Shard(x.Shard).ResolveLetter(ctx, &store.Resolution{
		Sink: x.Sink, Letter: x.stream, What: r.Decision, Decision: who,
	})
	switch {
	case err != nil:
	case now:
		r.Resolved++
	default:
		r.Gone++
	}
	return err
}

// RequeueSink returns the sink whose done bits say which dead letters of a sink a requeue has delivered. The sink's own
// bits can't say this: there, every dead letter is done.
func RequeueSink(sink string) string { return "requeue-" + sink }

// Requeue delivers the grants of letters to their sink, and ends each letter afterwards, with the person and the
// reason. All letters must be of the sink of o.Handler. The publisher needs claims with that sink's name and the done
// bits of RequeueSink. Letters that can't be read, or that the sink refuses again, stay.
func (l *Letters) Requeue(ctx context.Context, o delivery.Options, pick Pick, who stream.Decision,
	dryRun bool) (*Report, error) {
	r := newReport(store.Requeued, dryRun)
	err := who.Check()
	if !dryRun { // a dry run needs no Handler
		err = errors.Join(err, o.Check())
	}
	if err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "requeue dead letters: %w", err)
	}
	d := delivery.New(o)
	err = l.pages(ctx, pick, r, func(ctx context.Context, letters []Letter) error {
		for batch := range slices.Chunk(letters, d.BatchGrants) {
			all, last := len(batch), batch[len(batch)-1].ID
			readable := slices.DeleteFunc(batch, func(x Letter) bool { return x.Grant == nil })
			r.Matched += int64(all)
			r.Unreadable += int64(all - len(readable))
			if dryRun || len(readable) == 0 {
				continue
			}
			if err := l.requeue(ctx, d, readable, who, r); err != nil {
				return err
			}
			r.passed(last)
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("requeue dead letters: %w; run it again to continue", err)
	}
	return r, nil
}

// requeue delivers letters of one sink and shard.
func (l *Letters) requeue(ctx context.Context, d *delivery.Deliverer, letters []Letter, who stream.Decision,
	r *Report) error {
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
	return d.Deliver(ctx, grants, delivery.Results{
		Delivered: func(ctx context.Context, delivered []hongbao.Grant) error {
			for i := range delivered {
				for _, x := range find(&delivered[i]) {
					if err := l.resolve(ctx, x, who, r); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Refused: func(g *hongbao.Grant, err error) { // in the order of the letters: the letters before this one are done
			id := find(g)[0].ID
			r.Refusals.Add(id, g, err)
			r.passed(id)
		},
	})
}

// Report is the result of deciding about letters.
type Report struct {
	Decision string `json:"decision" doc:"requeued or dropped."`
	DryRun   bool   `json:"dry_run" doc:"True: nothing was written."`
	// Matched letters were selected; Resolved of them are requeued or dropped now; Unreadable ones can't be requeued;
	// Failed ones were refused by the sink again. Gone ones existed, but another decision had ended them first.
	Matched    int64 `json:"matched" doc:"Letters that were picked."`
	Resolved   int64 `json:"resolved" doc:"Those that were requeued or dropped now; 0 in a dry run."`
	Unreadable int64 `json:"unreadable" doc:"Those that can't be requeued, since they can't be read: drop them."`
	Gone       int64 `json:"gone" doc:"Those that another decision ended first. A requeue has delivered them all the same."`
	// Next is Pick.After for a call that continues where this one ended early. It is empty if this one finished, or if
	// ids were given.
	Next answers.Text `json:"next" nullable:"true" doc:"Goes into after, to go on if this ended too early; else null."`
	delivery.Refusals
}

// passed notes that all letters that the filter selects up to this one are decided, or were refused.
func (r *Report) passed(id string) {
	if r.Next != "" {
		r.Next = answers.Text(id)
	}
}

func newReport(what string, dryRun bool) *Report {
	return &Report{Decision: what, DryRun: dryRun, Refusals: delivery.Refusals{Failures: []delivery.Failure{}}}
}

// Add adds the counts of another report, of another sink, to this one.
func (r *Report) Add(o *Report) {
	r.Matched += o.Matched
	r.Resolved += o.Resolved
	r.Unreadable += o.Unreadable
	r.Gone += o.Gone
	r.Failed += o.Failed
	r.Failures = append(r.Failures, o.Failures...)
}

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	if r.DryRun {
		fmt.Fprintf(&b, "Dry run: nothing was written. %d letters would be %s.\n", r.Matched-r.Unreadable, r.Decision)
	} else {
		fmt.Fprintf(&b, "%d of %d letters were %s.\n", r.Resolved, r.Matched, r.Decision)
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(&b, "%d can't be read, so there is nothing to deliver: look at them with `hongbao dead show`, then drop "+
			"them.\n", r.Unreadable)
	}
	if r.Gone > 0 {
		fmt.Fprintf(&b, "%d were decided before: another decision ended them first; `hongbao journal` names it.", r.Gone)
		if r.Decision == store.Requeued {
			b.WriteString(" They were delivered all the same.")
		}
		b.WriteByte('\n')
	}
	r.Print(&b)
	if r.Next != "" {
		fmt.Fprintf(&b, "It ended too early. Run the same command with --after %s to continue.\n", r.Next)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
