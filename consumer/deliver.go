package consumer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// deliver brings one batch of items to the handler and ends their delivery. When it returns without an error and the
// lease holds, every item is finished.
func (s *shard) deliver(l *lease, items []*item) error {
	var grants []owned
	for _, it := range items {
		for i := range it.open {
			grants = append(grants, owned{grant: it.open[i], by: it})
		}
	}
	d := delivery{s: s, l: l}
	err := d.handle(grants)
	if l.lost() {
		return err // the entries may be another worker's by now: nothing more is written
	}
	l.drop(items)
	return errors.Join(err, d.finish(items))
}

// owned is a grant and the item that it belongs to.
type owned struct {
	grant hongbao.Grant
	by    *item
}

// delivery is one hand-over of a batch to the handler.
type delivery struct {
	s *shard
	l *lease
}

// handle brings grants to the handler until each is done or has failed by itself. It ends early, with grants in
// neither state, when the lease or the drain time does: what a cancelled handler says of a grant is not held against
// it. The error is Broken.
func (d *delivery) handle(grants []owned) error {
	for outages := int64(1); len(grants) > 0 && d.l.ctx.Err() == nil; outages++ {
		errs := d.call(grants)
		if errs == nil {
			if outages > 1 {
				d.s.log.Info("the sink works again", zap.Int("grants", len(grants)))
				d.s.stands(Working, nil)
			}
			done(grants)
			return nil
		}
		var outage, broken error
		left, leftErrs := grants[:0:0], errs[:0:0]
		for i, err := range errs {
			switch {
			case err == nil:
				done(grants[i : i+1])
				continue
			case hongbao.ClassOf(err) == hongbao.ClassBroken || errors.Is(err, shards.ErrStale):
				broken = err
			case hongbao.IsOutage(err):
				outage = err
			}
			left, leftErrs = append(left, grants[i]), append(leftErrs, err)
		}
		if broken != nil {
			return fmt.Errorf("sink %s: %w", d.s.cfg.Group, broken)
		}
		if d.l.ctx.Err() != nil {
			return nil
		}
		if outage == nil {
			return d.failed(left, leftErrs, len(left) == len(grants))
		}
		grants = left
		d.waitOut(outages, len(left), outage)
	}
	return nil
}

// waitOut pauses the shard while the sink is down. The lease is renewed meanwhile, nothing more is read, and no grant
// loses an attempt.
func (d *delivery) waitOut(outages int64, held int, err error) {
	if outages == 1 {
		d.s.c.count.outages.Add(1)
		d.l.giveBack()
	}
	d.s.stands(SinkDown, err)
	pause := min(d.s.c.backoffOf(outages, 100*time.Millisecond), 10*time.Second)
	d.s.log.Warn("sink is down, the shard waits with what it holds", zap.Int("grants", held), zap.Duration("pause", pause),
		zap.Error(err))
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.l.ctx.Done():
	case <-d.l.drain.Done():
		d.l.cancel(errDrainOver) // a sink that is down won't come back for the drain: others take it over
	}
}

// failed holds errors against the grants they belong to. A failure that the whole batch shares is halved first, so that
// one bad grant costs no other an attempt.
func (d *delivery) failed(grants []owned, errs []error, all bool) error {
	shared := all && len(grants) > 1 && later(errs[0])
	for _, err := range errs {
		shared = shared && same(err, errs[0])
	}
	if shared {
		half := len(grants) / 2
		if err := d.handle(grants[:half]); err != nil {
			return err
		}
		return d.handle(grants[half:])
	}
	for i := range grants {
		it := grants[i].by
		it.failed = append(it.failed, failure{grant: grants[i].grant, err: errs[i]})
	}
	return nil
}

// same tells whether two errors are one and the same value. == alone panics on errors that can't be compared.
func same(a, b error) bool {
	return reflect.ValueOf(a).Comparable() && a == b //nolint:errorlint // identity is meant
}

// later tells whether another attempt may help.
func later(err error) bool {
	c := hongbao.ClassOf(err)
	return c == hongbao.ClassTransient || c == hongbao.ClassUnknown
}

func done(grants []owned) {
	for i := range grants {
		it := grants[i].by
		it.done = append(it.done, grants[i].grant.Seq)
	}
}

// call is one call of the handler, with its time bounded and its panic caught.
func (d *delivery) call(grants []owned) (errs []error) {
	ctx, cancel := context.WithTimeout(d.l.ctx, d.s.cfg.HandleTimeout)
	defer cancel()
	d.l.called(time.Now())
	defer d.l.called(time.Time{})
	batch := make([]hongbao.Grant, len(grants))
	for i := range grants {
		batch[i] = grants[i].grant
	}
	all := func(err error) []error {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer func() {
		if p := recover(); p != nil {
			d.s.log.Error("the handler panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			errs = all(hongbao.Errorf(hongbao.ClassUnknown, "the handler panicked: %v", p))
		}
	}()
	errs = d.s.cfg.Handler.Handle(ctx, batch)
	if errs != nil && len(errs) != len(grants) {
		return all(hongbao.Errorf(hongbao.ClassBroken,
			"the handler gave %d errors for %d grants: it can't be told what is done", len(errs), len(grants)))
	}
	return errs
}

// finish ends the delivery of the items: done bits and acks, dead letters, parking. Items of which grants are neither
// done nor failed stay pending and unfinished.
func (d *delivery) finish(items []*item) error {
	err := d.ack(items)
	for _, it := range items {
		if err != nil {
			return err
		}
		if !it.finished && len(it.failed) > 0 {
			err = d.s.parkOrDeadLetter(d.l.ctx, it)
		}
	}
	return err
}

// ack marks what is done and acks what is finished. It is repeated for as long as the lease lasts that the last
// renewal gave.
func (d *delivery) ack(items []*item) error {
	var runs []hongbao.SeqRange
	var ids []string
	var acked []*item
	grants := 0
	for _, it := range items {
		for _, seq := range it.done {
			runs = shards.AppendSeq(runs, seq)
		}
		grants += len(it.done)
		if len(it.done) == len(it.open) {
			if it.entry.Kind != hongbao.EntryGrant { // nothing is to be done for its events
				runs = append(runs, hongbao.SeqRange{First: it.entry.Seq, Last: it.entry.Last()})
			}
			ids, acked = append(ids, it.id), append(acked, it)
			if len(it.entry.Grants) == 0 && it.entry.Seq > 0 { // a close or an epoch: its events are done with the entry
				runs = append(runs, hongbao.SeqRange{First: it.entry.Seq, Last: it.entry.Last()})
			}
		}
	}
	if len(runs)+len(ids) == 0 {
		return nil
	}
	if err := d.ackPatiently(runs, ids); err != nil {
		return err
	}
	d.s.c.count.done.Add(int64(grants))
	for _, it := range acked {
		it.finished = true
	}
	return nil
}

// ackPatiently repeats the script, which may run twice, while Redis is out of reach.
func (d *delivery) ackPatiently(runs []hongbao.SeqRange, ids []string) error {
	lease := d.s.cfg.Lease
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(min(50*time.Millisecond, lease/4)),
		backoff.WithMaxInterval(lease/4), backoff.WithMaxElapsedTime(lease*2/3))
	var last error
	err := backoff.Retry(func() error {
		if last != nil {
			d.s.log.Warn("ack failed, it is tried again", zap.Error(last))
		}
		_, last = shards.Of(d.s.cfg.Redis, d.s.keys).Ack(context.WithoutCancel(d.l.ctx), d.s.cfg.Group, runs, ids)
		if hongbao.ClassOf(last) == hongbao.ClassBroken || errors.Is(last, shards.ErrStale) {
			return backoff.Permanent(last)
		}
		return last
	}, backoff.WithContext(policy, d.l.ctx))
	if err != nil {
		return last // the library would give the context's error instead, without a class
	}
	return nil
}

// parkOrDeadLetter parks an item that failed, after it dead-lettered the grants that failed for good or too often. An
// item of which nothing failed but what live workers hold keeps the attempts it had before.
func (s *shard) parkOrDeadLetter(ctx context.Context, it *item) error {
	open := len(it.open) - len(it.done) - len(it.failed) // neither done nor failed: the lease ended under way
	var again []failure
	attempts := it.attempt - 1
	for i, f := range it.failed {
		held := hongbao.IsHeld(f.err)
		if held || later(f.err) && it.attempt < s.cfg.MaxAttempts {
			again = append(again, f)
			if !held {
				attempts = it.attempt
			}
			continue
		}
		s.log.Error("a grant is set aside as a dead letter", zap.String("code", "dead_letter"),
			zap.String("event", f.grant.EventID()),
			zap.String("campaign", f.grant.Campaign), zap.Int64("packet", f.grant.Packet), zap.Int64("attempt", it.attempt),
			zap.Error(f.err))
		last := i == len(it.failed)-1 && len(again) == 0 && open == 0
		if _, err := s.deadLetter(ctx, it, &letter{grant: &f.grant, last: last}, f.err); err != nil {
			return err
		}
	}
	if open > 0 {
		return nil
	}
	it.finished = true
	if len(again) == 0 {
		return nil
	}
	n, err := shards.Of(s.cfg.Redis, s.keys).Park(context.WithoutCancel(ctx), s.cfg.Group, s.cfg.Consumer,
		[]shards.Parking{{ID: it.id, Level: min(it.attempt, s.c.topLevel()), Attempts: attempts}})
	if err != nil || n == 0 {
		return err // not ours any more, or deleted from the stream: who takes it next sees that
	}
	s.c.count.parked.Add(1)
	s.log.Warn("entry parked", zap.String("entry", it.id), zap.Int64("attempt", it.attempt), zap.Int("grants", len(again)),
		zap.Error(again[0].err))
	return nil
}

// letter is the grant of an entry that is set aside; last if nothing else of the entry is left.
type letter struct {
	grant *hongbao.Grant
	last  bool
}

// deadLetter writes the dead letter of a grant, or of a whole entry that can't be read. False: the entry is not ours
// any more.
func (s *shard) deadLetter(ctx context.Context, it *item, of *letter, reason error) (written bool, err error) {
	l := shards.Letter{Group: s.cfg.Group, Consumer: s.cfg.Consumer, EntryID: it.id, Last: true,
		Class: hongbao.ClassOf(reason), Reason: reason.Error(), Attempts: it.attempt}
	if of != nil {
		l.Grant, l.Last = of.grant, of.last
	}
	written, err = shards.Of(s.cfg.Redis, s.keys).DeadLetter(context.WithoutCancel(ctx), l)
	if written {
		s.c.count.dead.Add(1)
	}
	return written, err
}
