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

// errUnanswered is the result of a grant whose delivery ended with the lease or with the drain time.
var errUnanswered = errors.New("the delivery ended before the handler answered")

// batch returns how many of the items make one batch for the handler.
func (s *shard) batch(items []item) int {
	n, grants := 0, 0
	for n < len(items) && (n == 0 || grants+len(items[n].open) <= s.cfg.BatchGrants) {
		grants += len(items[n].open)
		n++
	}
	return n
}

// deliver calls the handler with the open grants of one batch, until each is done or has failed alone. It returns
// one result for each grant, in order: nil for a grant that is done. It ends early when the lease or the drain time
// ends. The rest then has errUnanswered, because errors of a cancelled handler do not count against a grant. The
// error is Broken, or says why the rest must wait: the sink is paused, its rate is used up, or no call is free.
func (s *shard) deliver(l *lease, batch []item) (results []error, err error) {
	d := delivery{s: s, l: l}
	s.readCampaigns(l.ctx)
	var open []int
	for i := range batch {
		for _, g := range batch[i].open {
			err := s.campaigns.hold(g.Campaign)
			if err == nil {
				err = errUnanswered
				open = append(open, len(d.grants))
			}
			d.grants, d.results = append(d.grants, g), append(d.results, err)
		}
	}
	return d.results, d.inPortions(open)
}

// delivery is one hand-over of a batch to the handler.
type delivery struct {
	s       *shard
	l       *lease
	grants  []hongbao.Grant
	results []error // of the grants
}

// inPortions calls the handler with the grants at these places, with as many at once as the rate allows.
func (d *delivery) inPortions(places []int) (err error) {
	for err == nil && len(places) > 0 {
		n := d.s.portion(len(places))
		err, places = d.handle(places[:n]), places[n:]
	}
	return err
}

// handle calls the handler with the grants at these places. It waits out outages, and halves a batch that fails as a
// whole.
func (d *delivery) handle(places []int) error {
	for outages := int64(1); len(places) > 0 && d.l.ctx.Err() == nil; outages++ {
		errs, err := d.admitted(places)
		if errors.Is(err, errSmaller) {
			return d.inPortions(places)
		}
		if err != nil {
			return err
		}
		var outage, broken error
		left, leftErrs := places[:0:0], errs[:0:0]
		for i, err := range errs {
			switch {
			case err == nil:
				d.results[places[i]] = nil
				continue
			case hongbao.ClassOf(err) == hongbao.ClassBroken || errors.Is(err, store.ErrStale):
				broken = err
			case hongbao.IsOutage(err):
				outage = err
			}
			left, leftErrs = append(left, places[i]), append(leftErrs, err)
		}
		switch {
		case broken != nil:
			return fmt.Errorf("sink %s: %w", d.s.cfg.Group, broken)
		case d.l.ctx.Err() != nil:
			return nil
		case outage == nil:
			if len(left) == 0 && outages > 1 {
				d.s.log.Info("the sink works again", zap.Int("grants", len(places)))
				d.s.setHealth(Working, nil)
			}
			return d.failed(left, leftErrs, len(left) == len(places))
		}
		places = left
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
	d.s.setHealth(SinkDown, err)
	pause := min(d.s.c.backoffOf(outages, 100*time.Millisecond), 10*time.Second)
	d.s.log.Warn("the sink is down, the shard waits with its entries", zap.Int("grants", held), zap.Duration("pause", pause),
		zap.Error(err))
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.l.ctx.Done():
	case <-d.l.drain.Done():
		d.l.cancel(errDrainOver) // the drain does not wait for a sink that is down: other workers take over
	}
}

// failed records errors as the results of their grants. It first halves a batch in which all grants failed with the
// same error, so that one bad grant costs no other grant an attempt.
func (d *delivery) failed(places []int, errs []error, all bool) error {
	shared := all && len(places) > 1 && retry.MayHelp(errs[0])
	for _, err := range errs {
		shared = shared && retry.Same(err, errs[0])
	}
	if shared {
		half := len(places) / 2
		if err := d.handle(places[:half]); err != nil {
			return err
		}
		return d.handle(places[half:])
	}
	for i, place := range places {
		d.results[place] = errs[i]
	}
	return nil
}

// admitted calls the handler if nothing forbids it. It first waits for one of Config.MaxCalls, which may take long.
// Then it checks people's decisions and the rate, so that both are fresh. The error says what forbids the call.
func (d *delivery) admitted(places []int) ([]error, error) {
	giveUp, err := d.s.takeCall(d.l.ctx)
	if err == nil {
		defer giveUp()
		err = d.s.mayCall(d.l.ctx, len(places))
	}
	switch {
	case d.l.ctx.Err() != nil:
		return slices.Repeat([]error{errUnanswered}, len(places)), nil
	case err != nil:
		return nil, err
	}
	return d.call(places), nil
}

// call calls the handler once, with a time limit, and catches its panic. It returns one error or nil for each grant.
func (d *delivery) call(places []int) (errs []error) {
	ctx, cancel := context.WithTimeout(d.l.ctx, d.s.cfg.HandleTimeout)
	defer cancel()
	d.s.stepped()
	defer d.s.stepped()
	d.l.called(time.Now())
	defer d.l.called(time.Time{})
	grants := make([]hongbao.Grant, len(places))
	for i, place := range places {
		grants[i] = d.grants[place]
	}
	defer func() {
		if p := recover(); p != nil {
			d.s.log.Error("the handler panicked", zap.String("code", "handler_panicked"), zap.Any("panic", p),
				zap.ByteString("stack", debug.Stack()))
			err := hongbao.Errorf(hongbao.ClassUnknown, "the handler panicked: %v", p)
			errs = slices.Repeat([]error{err}, len(places))
		}
	}()
	errs = d.s.cfg.Handler.Handle(ctx, grants)
	if errs != nil && len(errs) != len(grants) {
		err := hongbao.Errorf(hongbao.ClassBroken, "the handler returned %d errors for %d grants: it is unknown which are done",
			len(errs), len(grants))
		errs = slices.Repeat([]error{err}, len(grants))
	}
	if errs == nil {
		errs = make([]error, len(grants))
	}
	return errs
}
