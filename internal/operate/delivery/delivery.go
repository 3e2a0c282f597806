// Package delivery delivers grants to a Handler, and retries until each grant is delivered or refused. Replays and
// requeues of dead letters use it.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// MaxBatch bounds Options.BatchGrants.
const MaxBatch = 20_000

// Options configures a delivery.
type Options struct {
	// Handler delivers the grants. It must be idempotent: a second delivery of a grant must change nothing.
	Handler hongbao.Handler
	// BatchGrants is the maximum number of grants in one call of the Handler, 1 to 20,000.
	BatchGrants int
	// Rate is the maximum number of grants per second; 0 means no limit.
	Rate float64
	// Patience is how long a batch is retried while the target is unreachable, 0 to 24 h.
	Patience time.Duration
}

// Check returns one error that names all invalid options.
func (o *Options) Check() error {
	var errs []error
	if o.Handler == nil {
		errs = append(errs, errors.New("Handler is required"))
	}
	if o.BatchGrants < 1 || o.BatchGrants > MaxBatch {
		errs = append(errs, fmt.Errorf("BatchGrants is %d: want 1 to %d", o.BatchGrants, MaxBatch))
	}
	if !(o.Rate >= 0 && o.Rate <= 1e9) {
		errs = append(errs, fmt.Errorf("Rate is %v: want 0 to 1e9 grants per second", o.Rate))
	}
	if o.Patience < 0 || o.Patience > 24*time.Hour {
		errs = append(errs, fmt.Errorf("Patience is %s: want 0 to 24h", o.Patience))
	}
	return errors.Join(errs...)
}

// Deliverer delivers grants to a Handler. It is safe for concurrent use, and all its callers share one rate limit.
type Deliverer struct {
	Options
	limiter *rate.Limiter
}

// New returns a Deliverer. The caller has checked the options.
func New(o Options) *Deliverer {
	if o.Rate == 0 {
		return &Deliverer{o, rate.NewLimiter(rate.Inf, 0)}
	}
	o.BatchGrants = max(1, min(o.BatchGrants, int(o.Rate))) // a batch has at most one second's grants
	return &Deliverer{o, rate.NewLimiter(rate.Limit(o.Rate), o.BatchGrants)}
}

// Results has callbacks for the results of a delivery.
type Results struct {
	// Delivered is called with grants that the Handler has delivered. An error from it ends the delivery.
	Delivered func(ctx context.Context, grants []hongbao.Grant) error
	// Refused is called with a grant that the Handler did not deliver, and its last error.
	Refused func(g *hongbao.Grant, err error)
}

// Deliver delivers a batch of up to BatchGrants grants. It retries temporary errors for up to Options.Patience. It
// returns an error if the target is unreachable or broken, or if ctx has ended.
func (d *Deliverer) Deliver(ctx context.Context, b hongbao.Batch, out Results) error {
	pauses := retry.Backoff(50*time.Millisecond, 5*time.Second, max(d.Patience, 1))
	for {
		if err := d.limiter.WaitN(ctx, len(b.Grants)); err != nil {
			return fmt.Errorf("waiting for the rate limit: %w", err)
		}
		left, errs, err := d.call(ctx, b, out)
		if err != nil || len(left) == 0 {
			return err
		}
		pause := backoff.Stop
		if slices.ContainsFunc(errs, retry.MayHelp) {
			pause = pauses.NextBackOff()
		}
		if pause == backoff.Stop {
			b.Grants = left
			return d.giveUp(ctx, b, errs, out)
		}
		if b.Grants = left; !retry.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (d *Deliverer) call(ctx context.Context, b hongbao.Batch, out Results) (left []hongbao.Grant, errs []error,
	err error) {
	grants := b.Grants
	all := d.Handler.Handle(ctx, b)
	if all == nil {
		return nil, nil, out.Delivered(ctx, grants)
	}
	if len(all) != len(grants) {
		return nil, nil, hongbao.Errorf(hongbao.ClassBroken,
			"the handler returned %d errors for %d grants: it is unknown which of them were delivered", len(all), len(grants))
	}
	var delivered []hongbao.Grant
	for i, e := range all {
		switch {
		case e == nil:
			delivered = append(delivered, grants[i])
			continue
		case hongbao.ClassOf(e) == hongbao.ClassBroken || errors.Is(e, store.ErrStale):
			err = cmp.Or(err, e)
		}
		left, errs = append(left, grants[i]), append(errs, e)
	}
	if len(delivered) > 0 {
		err = errors.Join(out.Delivered(ctx, delivered), err)
	}
	if err == nil && len(left) > 0 {
		err = ctx.Err()
	}
	return left, errs, err
}

// giveUp refuses the grants. In an outage it returns an error instead, because the grants are not at fault. If all
// grants of a batch have the same error, one of them may have caused it: giveUp delivers each half separately.
func (d *Deliverer) giveUp(ctx context.Context, b hongbao.Batch, errs []error, out Results) error {
	if at := slices.IndexFunc(errs, hongbao.IsOutage); at >= 0 {
		return fmt.Errorf("the target is unreachable for longer than %s: %w", d.Patience, errs[at])
	}
	grants := b.Grants
	if len(grants) > 1 && areOne(errs) {
		half := len(grants) / 2
		if err := d.Deliver(ctx, hongbao.Batch{Shard: b.Shard, Epoch: b.Epoch, Grants: grants[:half]}, out); err != nil {
			return err
		}
		return d.Deliver(ctx, hongbao.Batch{Shard: b.Shard, Epoch: b.Epoch, Grants: grants[half:]}, out)
	}
	for i := range grants {
		out.Refused(&grants[i], errs[i])
	}
	return nil
}

func areOne(errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool { return !retry.Same(err, errs[0]) })
}
