// Package crowd simulates users who grab, for `hongbao demo`, `hongbao dev`, the soak and the bench.
package crowd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Load is how many calls a crowd makes, and how fast.
type Load struct {
	Callers int // calls at once
	Calls   int // calls in all
	Rate    int // calls a second; 0: no limit
}

// Run makes the calls, numbered from 0 in the order in which they start, and returns the measured calls per second.
// It stops at the first error.
func (l Load) Run(ctx context.Context, do func(ctx context.Context, caller, i int) error) (rate float64, err error) {
	var next atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for caller := range l.Callers {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < l.Calls; i = int(next.Add(1)) - 1 {
				if l.Rate > 0 {
					due := start.Add(time.Duration(i) * time.Second / time.Duration(l.Rate))
					if !retry.Pause(ctx, time.Until(due)) {
						return context.Cause(ctx)
					}
				}
				if err := do(ctx, caller, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(l.Calls) / time.Since(start).Seconds(), err
}

// pause is the time between two attempts of an undecided grab.
const pause = 100 * time.Millisecond

// Crowd simulates users and repeats each grab until it is decided. It counts the final answers. It is safe for
// concurrent use, but read the fields only while no grab runs.
type Crowd struct {
	Outcomes map[hongbao.Outcome]int64
	Latency  *hdrhistogram.Histogram // microseconds, including all retries

	grab func(context.Context, *hongbao.Grab) (hongbao.Answer, error)
	say  func(format string, args ...any)

	mu       sync.Mutex
	hindered time.Time // when an attempt last failed; zero: a later attempt has succeeded
}

// New returns a crowd that sends its grabs with grab. It reports trouble with say.
func New(grab func(context.Context, *hongbao.Grab) (hongbao.Answer, error), say func(string, ...any)) *Crowd {
	return &Crowd{Outcomes: map[hongbao.Outcome]int64{}, Latency: hdrhistogram.New(1, time.Hour.Microseconds(), 3),
		grab: grab, say: say}
}

// Grab repeats a grab with the same request id until it is decided, and counts the outcome.
func (c *Crowd) Grab(ctx context.Context, g hongbao.Grab) (a hongbao.Answer, err error) {
	start := time.Now()
	err = c.RetryUntilDecided(ctx, func() (err error) {
		if a, err = c.grab(ctx, &g); err == nil && !a.Outcome.Final() {
			err = hongbao.Errorf(hongbao.ClassTransient, "campaign %s: %s", g.Campaign, a.Outcome)
		}
		return err
	})
	if err != nil {
		return a, fmt.Errorf("user %s: %w", g.User, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Outcomes[a.Outcome]++
	return a, c.Latency.RecordValue(time.Since(start).Microseconds())
}

// RetryUntilDecided calls try until it succeeds, ctx ends, or its error is permanent. It reports the first failure, and
// the first success after that.
func (c *Crowd) RetryUntilDecided(ctx context.Context, try func() error) error {
	return retry.Poll(ctx, pause, func() (done bool, err error) {
		start := time.Now()
		if err = try(); err != nil && (ctx.Err() != nil || !retry.MayHelp(err)) {
			return false, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err != nil:
			if c.hindered.IsZero() {
				c.say("The crowd can't go on, and tries again: %v", err)
			}
			c.hindered = time.Now()
		case !c.hindered.IsZero() && start.After(c.hindered): // an attempt that began before the failure proves nothing
			c.hindered = time.Time{}
			c.say("The crowd gets on again.")
		}
		return err == nil, nil
	})
}
