package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// part delivers what matches of a part and was not delivered before.
func (w *run) part(ctx context.Context, shard int, p *part) error {
	grants := slices.DeleteFunc(p.grants, func(g hongbao.Grant) bool {
		return !w.opts.Filter.matches(&g) || w.Only != nil && !w.Only(&g)
	})
	for batch := range slices.Chunk(grants, w.pace.batch) {
		if err := w.batch(ctx, shard, batch); err != nil {
			return err
		}
	}
	w.note(func(r *Report) {
		r.Looked += p.events
		r.add(&p.read)
	})
	if w.opts.Dead != "" {
		return ctx.Err()
	}
	at := &w.shard[shard].seqs
	at.First += p.events
	return errors.Join(w.noteNext(ctx, shard, at.First), ctx.Err())
}

// noteNext notes where the next run goes on: at a seq, or, for 0, with everything again.
func (w *run) noteNext(ctx context.Context, shard int, next int64) error {
	if w.opts.DryRun || w.shard[shard].failed {
		return nil
	}
	return shards.Of(w.Redis, w.Space.Shard(shard)).Replayed(context.WithoutCancel(ctx), w.Name, next)
}

// note changes the report and tells of it.
func (w *run) note(change func(*Report)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.report)
	if w.Progress != nil {
		w.Progress(&w.report)
	}
}

func (w *run) batch(ctx context.Context, shard int, grants []hongbao.Grant) error {
	k := w.Space.Shard(shard)
	look := shards.Of(w.Redis, k).Done
	if w.DoneSink != DoneSink(w.Name) {
		look = shards.Of(w.Redis, k).GroupDone
	}
	done, err := look(ctx, w.DoneSink, hongbao.SeqRange{First: grants[0].Seq, Last: grants[len(grants)-1].Seq})
	if err != nil {
		return err
	}
	left := make([]hongbao.Grant, 0, len(grants))
	for i := range grants {
		if !done.Has(grants[i].Seq) {
			left = append(left, grants[i])
		}
	}
	there, err := w.there(ctx, shard, left)
	if err != nil {
		return err
	}
	w.note(func(r *Report) {
		r.Matched += int64(len(grants))
		r.Before += int64(len(grants) - len(left))
		if w.opts.DryRun {
			r.There += int64(len(there))
		}
	})
	if w.opts.DryRun || len(left) == 0 {
		return nil
	}
	d := deliverer{handler: w.Handler, pace: w.pace, patience: w.Patience,
		done: func(ctx context.Context, grants []hongbao.Grant) error {
			if err := w.marked(ctx, k, grants); err != nil {
				return err
			}
			had := int64(0)
			for i := range grants {
				if there[grants[i].Seq] {
					had++
				}
			}
			w.note(func(r *Report) {
				r.There += had
				r.Delivered += int64(len(grants)) - had
			})
			return nil
		}, failed: func(g *hongbao.Grant, err error) {
			w.shard[shard].failed = true
			w.note(func(r *Report) {
				if r.Failed++; len(r.Failures) < maxFailures {
					r.Failures = append(r.Failures, failureOf("", g, err))
				}
			})
		}}
	return d.deliver(ctx, left)
}

// marked sets the done bits of what was delivered, unless the handler does.
func (w *run) marked(ctx context.Context, k shards.Keys, grants []hongbao.Grant) error {
	if w.Marks {
		return nil
	}
	err := mark(ctx, w, k, w.DoneSink, grants)
	if told := slices.DeleteFunc(slices.Clone(grants),
		func(g hongbao.Grant) bool { return !w.source.told.has(&g) }); err == nil && len(told) > 0 {
		err = mark(ctx, w, k, w.Sink, told) // no worker will ever do it
	}
	return err
}

// there tells, by seq, which of the grants the ledger has before they are delivered to it; none if the target is
// another one.
func (w *run) there(ctx context.Context, shard int, grants []hongbao.Grant) (map[int64]bool, error) {
	if !w.Settles || w.Ledger == nil || len(grants) == 0 {
		return nil, nil
	}
	bySeq := make(map[int64]*hongbao.Grant, len(grants))
	for i := range grants {
		bySeq[grants[i].Seq] = &grants[i]
	}
	has := map[int64]bool{}
	seqs := hongbao.SeqRange{First: grants[0].Seq, Last: grants[len(grants)-1].Seq}
	err := w.Ledger.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error {
		if want := bySeq[g.Seq]; want != nil && want.Campaign == g.Campaign && want.Packet == g.Packet {
			has[g.Seq] = true
		}
		return nil
	})
	return has, err
}

// mark sets a sink's done bits.
func mark(ctx context.Context, w *run, k shards.Keys, sink string, grants []hongbao.Grant) error {
	var events []hongbao.SeqRange
	for i := range grants {
		events = shards.AppendSeq(events, grants[i].Seq)
	}
	_, err := shards.Of(w.Redis, k).Ack(ctx, sink, events, nil)
	return err
}

// deliverer brings grants to a Handler until each is done or has failed.
type deliverer struct {
	handler  hongbao.Handler
	pace     *pace
	patience time.Duration
	// done is told which grants are delivered now; its error ends the delivery.
	done   func(ctx context.Context, grants []hongbao.Grant) error
	failed func(g *hongbao.Grant, err error)
}

// deliver repeats what may work later for as long as the patience lasts. Its error says that it can't go on: the target
// is out of reach, or broken, or ctx has ended.
func (d *deliverer) deliver(ctx context.Context, grants []hongbao.Grant) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(max(d.patience, 1)))
	for {
		if err := d.pace.wait(ctx, len(grants)); err != nil {
			return err
		}
		left, errs, err := d.call(ctx, grants)
		if err != nil || len(left) == 0 {
			return err
		}
		pause := backoff.Stop
		if later(errs) {
			pause = wait.NextBackOff()
		}
		if pause == backoff.Stop {
			return d.giveUp(ctx, left, errs)
		}
		if grants = left; !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// call calls the Handler once. It gives the grants that are not delivered, with their errors.
func (d *deliverer) call(ctx context.Context, grants []hongbao.Grant) (left []hongbao.Grant, errs []error, err error) {
	all := d.handler.Handle(ctx, slices.Clone(grants))
	if all == nil {
		return nil, nil, d.done(ctx, grants)
	}
	if len(all) != len(grants) {
		return nil, nil, hongbao.Errorf(hongbao.ClassBroken,
			"the handler gave %d errors for %d grants: it can't be told what is done", len(all), len(grants))
	}
	var done []hongbao.Grant
	for i, e := range all {
		switch {
		case e == nil:
			done = append(done, grants[i])
			continue
		case hongbao.ClassOf(e) == hongbao.ClassBroken || errors.Is(e, shards.ErrStale):
			err = cmp.Or(err, e)
		}
		left, errs = append(left, grants[i]), append(errs, e)
	}
	if len(done) > 0 {
		err = errors.Join(d.done(ctx, done), err)
	}
	if err == nil && len(left) > 0 {
		err = ctx.Err()
	}
	return left, errs, err
}

// giveUp holds the errors against the grants; an outage is the target's, and one that a whole batch shares is halved
// first.
func (d *deliverer) giveUp(ctx context.Context, grants []hongbao.Grant, errs []error) error {
	for _, err := range errs {
		if hongbao.IsOutage(err) {
			return fmt.Errorf("the target is out of reach for longer than %s: %w", d.patience, err)
		}
	}
	if len(grants) > 1 && shared(errs) {
		half := len(grants) / 2
		if err := d.deliver(ctx, grants[:half]); err != nil {
			return err
		}
		return d.deliver(ctx, grants[half:])
	}
	for i := range grants {
		d.failed(&grants[i], errs[i])
	}
	return nil
}

// shared tells whether all errors are one and the same value. == alone panics on errors that can't be compared.
func shared(errs []error) bool {
	for _, err := range errs {
		if !reflect.ValueOf(err).Comparable() || err != errs[0] { //nolint:errorlint // identity is meant
			return false
		}
	}
	return true
}

// later tells whether another attempt may help one of them.
func later(errs []error) bool {
	for _, err := range errs {
		if c := hongbao.ClassOf(err); c == hongbao.ClassTransient || c == hongbao.ClassUnknown {
			return true
		}
	}
	return false
}
