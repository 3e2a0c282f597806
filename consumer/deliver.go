package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// errUnanswered is the result of a grant for which the handler had not answered when the delivery ended.
var errUnanswered = errors.New("the delivery ended before the handler answered")

// batch returns how many of the items fit into one batch. A batch has at least one item.
func (s *shard) batch(items []item) int {
	n, grants := 0, 0
	for n < len(items) && (n == 0 || grants+len(items[n].open) <= s.cfg.BatchGrants) {
		grants += len(items[n].open)
		n++
	}
	return n
}

// deliver calls the handler until each open grant of the batch is done or has its own error. It returns one result per
// grant, in order; nil means done.
//
// deliver stops early when the lease or the drain time ends. The remaining grants then have errUnanswered: an error
// that only comes from the cancellation must cost no attempt. err is Broken, or says why the remaining grants must
// wait: the sink is paused, its rate is used up, or all calls are busy.
func (s *shard) deliver(l *lease, batch []item) (results []error, err error) {
	d := delivery{s: s, l: l}
	s.readCampaigns(l.ctx)
	var open []int
	for i := range batch {
		for _, g := range batch[i].open {
			err := s.campaigns.pauseReason(g.Campaign)
			if err == nil {
				err = errUnanswered
				open = append(open, len(d.grants))
			}
			d.grants, d.results = append(d.grants, g), append(d.results, err)
		}
	}
	return d.results, d.inPortions(open)
}

type delivery struct {
	s       *shard
	l       *lease
	grants  []hongbao.Grant
	results []error // by index in grants
}

// inPortions calls the handler for the grants at these indexes, with no more grants per call than the rate allows.
func (d *delivery) inPortions(indexes []int) (err error) {
	for err == nil && len(indexes) > 0 {
		n := d.s.portion(len(indexes))
		err, indexes = d.handle(indexes[:n]), indexes[n:]
	}
	return err
}

// handle calls the handler for the grants at these indexes. It retries during an outage, and halves a batch that fails
// as a whole.
func (d *delivery) handle(indexes []int) error {
	for outages := int64(1); len(indexes) > 0 && d.l.ctx.Err() == nil; outages++ {
		errs, err := d.admitted(indexes)
		if errors.Is(err, errSmaller) {
			return d.inPortions(indexes)
		}
		if err != nil {
			return err
		}
		var outage, broken error
		left, leftErrs := indexes[:0:0], errs[:0:0]
		for i, err := range errs {
			switch {
			case err == nil:
				d.results[indexes[i]] = nil
				continue
			case hongbao.ClassOf(err) == hongbao.ClassBroken || errors.Is(err, store.ErrStale):
				broken = err
			case hongbao.IsOutage(err):
				outage = err
			}
			left, leftErrs = append(left, indexes[i]), append(leftErrs, err)
		}
		switch {
		case broken != nil:
			return fmt.Errorf("sink %s: %w", d.s.cfg.Group, broken)
		case d.l.ctx.Err() != nil:
			return nil
		case outage == nil:
			if len(left) == 0 && outages > 1 {
				d.s.log.Info("the sink works again", zap.Int("grants", len(indexes)))
				d.s.setHealth(Working, nil)
			}
			return d.failed(left, leftErrs, len(left) == len(indexes))
		}
		indexes = left
		d.waitOut(outages, len(left), outage)
	}
	return nil
}

// waitOut waits before the next try while the sink is down. The lease is still renewed, the shard reads nothing, and
// no grant loses an attempt.
func (d *delivery) waitOut(outages int64, held int, err error) {
	if outages == 1 {
		d.s.c.count.outages.Add(1)
		d.l.giveBack()
	}
	d.s.setHealth(SinkDown, err)
	pause := min(d.s.c.backoffOf(outages, 100*time.Millisecond), 10*time.Second)
	d.s.log.Warn("the sink is down; the shard keeps its entries", zap.Int("grants", held), zap.Duration("pause", pause),
		zap.Error(err))
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.l.ctx.Done():
	case <-d.l.drain.Done():
		d.l.cancel(errDrainOver) // do not drain into a sink that is down: other workers take over
	}
}

// failed records the errors as the results of the grants. If all grants of a batch failed with the same error, it
// first retries both halves, so that one bad grant costs the other grants no attempt.
func (d *delivery) failed(indexes []int, errs []error, all bool) error {
	shared := all && len(indexes) > 1 && retry.MayHelp(errs[0])
	for _, err := range errs {
		shared = shared && retry.Same(err, errs[0])
	}
	if shared {
		half := len(indexes) / 2
		if err := d.handle(indexes[:half]); err != nil {
			return err
		}
		return d.handle(indexes[half:])
	}
	for i, index := range indexes {
		d.results[index] = errs[i]
	}
	return nil
}

// admitted calls the handler unless the sink is paused, its rate is used up, or no call slot is free. The error names
// the reason. Waiting for a slot may take long, so the pause and the rate are checked after it.
func (d *delivery) admitted(indexes []int) ([]error, error) {
	giveUp, err := d.s.takeCall(d.l.ctx)
	if err == nil {
		defer giveUp()
		err = d.s.mayCall(d.l.ctx, len(indexes))
	}
	switch {
	case d.l.ctx.Err() != nil:
		return slices.Repeat([]error{errUnanswered}, len(indexes)), nil
	case err != nil:
		return nil, err
	}
	return d.call(indexes), nil
}

// at returns the grants at these indexes. It copies them only if they are not adjacent.
func (d *delivery) at(indexes []int) []hongbao.Grant {
	first, last := indexes[0], indexes[len(indexes)-1]
	if last-first == len(indexes)-1 { // the indexes ascend
		return d.grants[first : last+1 : last+1]
	}
	grants := make([]hongbao.Grant, len(indexes))
	for i, index := range indexes {
		grants[i] = d.grants[index]
	}
	return grants
}

// call calls the handler once, with a time limit, and recovers from a panic. It returns one result per grant.
func (d *delivery) call(indexes []int) (errs []error) {
	ctx, cancel := context.WithTimeout(d.l.ctx, d.s.cfg.HandleTimeout)
	defer cancel()
	d.s.stepped()
	defer d.s.stepped()
	d.l.called(time.Now())
	defer d.l.called(time.Time{})
	b := hongbao.Batch{Shard: d.s.index, Epoch: d.s.epoch, Grants: d.at(indexes)}
	defer func() {
		if p := recover(); p != nil {
			d.s.log.Error("the handler panicked", zap.String("code", "handler_panicked"), zap.Any("panic", p),
				zap.ByteString("stack", debug.Stack()))
			err := hongbao.Errorf(hongbao.ClassUnknown, "the handler panicked: %v", p)
			errs = slices.Repeat([]error{err}, len(indexes))
		}
	}()
	errs = d.s.cfg.Handler.Handle(ctx, b)
	if errs != nil && len(errs) != len(indexes) {
		err := hongbao.Errorf(hongbao.ClassBroken,
			"the handler returned %d errors for %d grants: unknown which grants are done", len(errs), len(indexes))
		errs = slices.Repeat([]error{err}, len(indexes))
	}
	if errs == nil {
		errs = make([]error, len(indexes))
	}
	return errs
}
