package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Pick selects the letters to decide about. If IDs is empty, the filter selects them.
type Pick struct {
	IDs    []string
	Filter Filter
	// After is the Next of an earlier report: the filter selects only letters after it. If it is empty, the filter
	// starts with the oldest letter.
	After string
	// Expect is the number of letters that a person expects the filter to select; nil if no number was given.
	Expect *int64

	// counted has the last letter of each stream that CheckExpected has counted; nil before CheckExpected.
	counted map[Place]string
}

// CheckExpected returns an error if the filter does not select as many letters as the person expects. With Pick.After,
// fewer letters are allowed, because an earlier call has decided some. CheckExpected also limits the pick to the
// counted letters, so letters that are written later stay.
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
	err := l.each(ctx, &all, func(_ *store.Shard, letters []model.Letter, last string) error {
		n += int64(len(letters))
		sink, shard, id, err := model.ParseLetterID(last)
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

// Start returns where the work starts. It is the first value of Report.Next.
func (p *Pick) Start() string {
	if p.After != "" || len(p.IDs) > 0 || len(p.Filter.Sinks) == 0 {
		return p.After
	}
	return p.Filter.Sinks[0] + "/0/0-0" // an ID before all letters of the first shard
}

// pages calls fn for pages of the selected letters, each of one sink and shard. It sets r.Next to where the next call
// must continue, and empties it once all letters are processed.
func (l *Letters) pages(ctx context.Context, pick Pick, r *model.LetterReport,
	fn func(k *store.Shard, letters []model.Letter) error) error {
	r.Next = optional.Text(pick.Start())
	if len(pick.IDs) == 0 {
		err := l.each(ctx, &pick, func(k *store.Shard, letters []model.Letter, last string) error {
			err := fn(k, letters)
			if err == nil {
				r.Passed(last)
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
		x, err := l.Get(ctx, id)
		if err != nil {
			return err
		}
		if err := fn(at, []model.Letter{x}); err != nil {
			return err
		}
	}
	return nil
}

// Drop records that the grants of the selected letters will never be delivered, and moves the letters to the resolved
// letters. A letter stays if an open claim has its grant, because whoever finishes the claim may still deliver the
// grant. A dry run only counts the letters.
func (l *Letters) Drop(ctx context.Context, pick Pick, who stream.Decision, dryRun bool) (*model.LetterReport, error) {
	r := newReport(model.LetterDropped, dryRun)
	if err := who.Check(); err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "drop dead letters: %w", err)
	}
	err := l.pages(ctx, pick, r, func(k *store.Shard, letters []model.Letter) error {
		r.Count(letters)
		if dryRun || len(letters) == 0 {
			return nil
		}
		open, err := k.Group(letters[0].Sink).OpenClaims(ctx)
		for i := 0; i < len(letters) && err == nil; i++ {
			x := &letters[i]
			if why := mayArrive(x, open); why != nil {
				r.Refusals.Add(x.ID, &hongbao.Grant{Shard: x.Shard, Seq: x.Seq}, why)
				continue
			}
			err = l.resolve(ctx, k, x, who, r)
		}
		return err
	})
	if err != nil {
		return r, fmt.Errorf("drop dead letters: %w", err)
	}
	return r, nil
}

// mayArrive returns an error if an open claim has the letter's grant. No later claim can have it, except that of a
// requeue.
func mayArrive(x *model.Letter, open []store.OpenClaim) error {
	for _, c := range open {
		if slices.ContainsFunc(c.Events, func(r stream.SeqRange) bool { return r.Has(x.Seq) }) {
			return hongbao.Errorf(hongbao.ClassConflict, "claim %s/%d/%s has the grant, so the sink may have it or still get it: "+
				"wait until a worker has finished the claim, or requeue the letter", x.Sink, x.Shard, c.ID)
		}
	}
	return nil
}

// resolve moves a letter to the resolved letters, with the report's decision, and counts it in the report.
func (l *Letters) resolve(ctx context.Context, k *store.Shard, x *model.Letter, who stream.Decision, r *model.LetterReport) error {
	resolution := store.Resolution{Sink: x.Sink, Letter: x.ID[strings.LastIndexByte(x.ID, '/')+1:], What: r.Decision, Decision: who}
	if r.Decision == model.LetterRequeued {
		resolution.Campaign = x.Grant.Campaign
	}
	now, err := k.ResolveLetter(ctx, &resolution)
	switch {
	case err != nil:
	case now:
		r.Resolved++
	default:
		r.Gone++
	}
	return err
}

// RequeueSink returns the name under which a requeue keeps its done bits for the sink. They mark the dead letters that
// were delivered, by a requeue or by a worker that completed an open claim. The sink's own done bits can't show this,
// because they mark every dead letter as done.
func RequeueSink(sink string) string { return "requeue-" + sink }

// Requeue delivers the grants of letters to their sink, and then resolves each letter with the person and the reason.
// All letters must belong to the sink of o.Handler. A publisher as the Handler must use the claims of that sink, and
// the done bits of RequeueSink. A letter stays if it can't be read, or if the sink refuses its grant again.
func (l *Letters) Requeue(ctx context.Context, o delivery.Options, pick Pick, who stream.Decision,
	dryRun bool) (*model.LetterReport, error) {
	r := newReport(model.LetterRequeued, dryRun)
	err := who.Check()
	if !dryRun { // a dry run needs no Handler
		err = errors.Join(err, o.Check())
	}
	if err != nil {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "requeue dead letters: %w", err)
	}
	d := delivery.New(o)
	err = l.pages(ctx, pick, r, func(k *store.Shard, letters []model.Letter) error {
		for batch := range slices.Chunk(letters, d.BatchGrants) {
			r.Count(batch)
			all, last := len(batch), batch[len(batch)-1].ID
			readable := slices.DeleteFunc(batch, func(x model.Letter) bool { return x.Grant == nil })
			r.Unreadable += int64(all - len(readable))
			if dryRun || len(readable) == 0 {
				continue
			}
			if err := l.requeue(ctx, d, k, readable, who, r); err != nil {
				return err
			}
			r.Passed(last)
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("requeue dead letters: %w; run it again to continue", err)
	}
	return r, nil
}

// requeue delivers the grants of letters of one sink and shard, and resolves the letters that the sink takes.
func (l *Letters) requeue(ctx context.Context, d *delivery.Deliverer, k *store.Shard, letters []model.Letter,
	who stream.Decision, r *model.LetterReport) error {
	grants := make([]hongbao.Grant, len(letters))
	for i := range letters {
		grants[i] = *letters[i].Grant
	}
	find := func(g *hongbao.Grant) []*model.Letter {
		var found []*model.Letter
		for i := range letters {
			if *letters[i].Grant == *g {
				found = append(found, &letters[i])
			}
		}
		return found
	}
	return d.Deliver(ctx, hongbao.Batch{Shard: k.Index(), Epoch: k.Epoch(), Grants: grants}, delivery.Results{
		Delivered: func(ctx context.Context, delivered []hongbao.Grant) error {
			for i := range delivered {
				for _, x := range find(&delivered[i]) {
					if err := l.resolve(ctx, k, x, who, r); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Refused: func(g *hongbao.Grant, err error) { // called in the order of the letters, so all earlier ones are done
			id := find(g)[0].ID
			r.Refusals.Add(id, g, err)
			r.Passed(id)
		},
	})
}

func newReport(what string, dryRun bool) *model.LetterReport {
	return &model.LetterReport{Decision: what, DryRun: dryRun, Refusals: model.Refusals{Failures: []model.Failure{}}}
}
