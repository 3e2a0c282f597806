package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// Demo is a scripted run of the development server. A campaign opens and a crowd grabs, while some answers are lost
// and a worker is killed. When every grant is delivered, an audit compares Redis, the ledger and the topic.
type Demo struct {
	Packets int64          // of the campaign
	Total   hongbao.Amount // sum of the packets
	Users   int            // number of users who grab
	// Keep lets the development server run on after the demo.
	Keep bool
	// Done is called with the result, even if the audit found differences.
	Done func(*Result) error

	started time.Time
	over    bool
	rained  atomic.Bool // all users have their answers

	mu     sync.Mutex
	result Result
}

// grabTwiceEvery makes one in so many users grab a second time.
const grabTwiceEvery = 5

// stopped replaces err if a signal ended the demo.
func (d *Demo) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && !d.over && (err == nil || errors.Is(err, context.Canceled)) {
		return context.Cause(ctx)
	}
	return err
}

// run runs the demo. Its error is not nil if the audit found differences.
func (d *Demo) run(ctx context.Context, server *Dev, on *serving) error {
	hash, err := create(ctx, on.App, campaignID, "Spring rain", d.Packets, d.Total)
	if err != nil {
		return err
	}
	fmt.Fprintf(server.Out, "campaign  %d packets, %s, plan hash %.16s...\n", d.Packets, money.Text(d.Total, currency),
		hash)
	if err := on.faults.Cause(ctx, faults.LoseAnswers); err != nil {
		return err
	}
	g, raining := errgroup.WithContext(ctx)
	g.Go(func() error { return d.rain(raining, server.say, on) })
	g.Go(func() error { return d.watch(raining, server.Out, on) })
	if err := g.Wait(); err != nil {
		return err
	}
	report, err := books.Of(on.App).Audit(ctx, audit.Options{})
	if err != nil {
		return err
	}
	if report.Verdict != model.Agrees {
		err = app.NeedsAttention("the audit found differences")
	}
	r := &d.result
	r.Users, r.LostReplies, r.Seconds, r.Audit = d.Users, on.faults.Lost(), time.Since(d.started).Seconds(), report
	d.over = true
	return errors.Join(d.Done(r), err)
}

// rain lets every user grab, and returns when every grab is decided.
func (d *Demo) rain(ctx context.Context, say local.Say, on *serving) error {
	c, start := crowd.New(on.grabber.Grab, say), time.Now()
	_, err := crowd.Load{Callers: callers, Calls: d.Users}.Run(ctx, func(ctx context.Context, _, u int) error {
		return d.user(ctx, c, hongbao.Grab{Campaign: campaignID, User: fmt.Sprintf("user-%06d", u)}, u%grabTwiceEvery == 0)
	})
	r := &d.result
	r.GrabSeconds, r.Outcomes, r.latency = time.Since(start).Seconds(), c.Outcomes, c.Latency
	for _, n := range c.Outcomes {
		r.Grabs += n
	}
	d.rained.Store(err == nil)
	return err
}

// user lets one user grab, and grab again if again is set. The second grab has its own request id, so it is not
// a retry.
func (d *Demo) user(ctx context.Context, c *crowd.Crowd, g hongbao.Grab, again bool) error {
	first, err := c.Grab(ctx, g)
	second := first
	if err == nil && again {
		second, err = c.Grab(ctx, g)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.result
	for _, receipt := range first.Receipts {
		r.amounts = append(r.amounts, receipt.Amount)
	}
	if !again {
		return nil
	}
	r.again++
	if len(first.Receipts) == 0 {
		return nil
	}
	if second.Outcome != hongbao.OutcomeAlreadyGranted || second.Receipts[0] != first.Receipts[0] {
		return fmt.Errorf("user %s got packet %d, but the second grab got %s instead of the same receipt", g.User, first.Receipts[0].Packet,
			second.Outcome)
	}
	r.same++
	return nil
}

// watch prints the progress, kills a worker at a third of the grants, and returns when every grant is
// delivered.
func (d *Demo) watch(ctx context.Context, out io.Writer, on *serving) error {
	all := min(d.Packets, int64(d.Users))
	limit := time.Now().Add(time.Minute + time.Duration(d.Packets)*time.Millisecond)
	var shown time.Time
	var mark int64
	return retry.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		over := d.rained.Load()
		at, err := progressOf(ctx, on.App)
		if err != nil {
			return false, err
		}
		delivered := over && at.settled == at.granted && at.published == at.granted
		// print a line at each tenth of the progress, and at least once a second
		if now := 1 + (at.granted+at.settled+at.published)*10/(3*all); now != mark || time.Since(shown) > time.Second {
			mark, shown = now, time.Now()
			fmt.Fprintf(out, "%5.1fs    granted %s  settled %s  published %s\n", time.Since(d.started).Seconds(),
				bar(at.granted, all), bar(at.settled, all), bar(at.published, all))
		}
		if d.result.Kills == 0 && at.settled > 0 && at.granted >= all/3 {
			d.result.Kills++
			return false, on.faults.Cause(ctx, faults.KillWorker)
		}
		if !delivered && time.Now().After(limit) {
			err = fmt.Errorf("not all grants were delivered in time: %d granted, %d settled, %d published", at.granted, at.settled,
				at.published)
		}
		return delivered, err
	})
}

// bar draws n of all as a progress bar.
func bar(n, all int64) string {
	const width = 12
	full := int(min(max(n, 0), all) * width / max(all, 1))
	return fmt.Sprintf("%s%s %d", strings.Repeat("#", full), strings.Repeat(".", width-full), n)
}

type progress struct{ granted, settled, published int64 }

// progressOf reads the progress from Redis: grants, settled grants and published grants.
func progressOf(ctx context.Context, a *app.App) (at progress, err error) {
	s, err := deliveries.Of(a).Status(ctx)
	if err == nil {
		err = s.CheckRead()
	}
	if err != nil {
		return at, err
	}
	for i := range s.Sinks {
		shard := &s.Sinks[i].Shards[0]
		at.granted = shard.Seq
		switch s.Sinks[i].Sink {
		case configs.SinkBalance:
			at.settled = shard.Seq - shard.Waiting
		case configs.SinkKafka:
			at.published = shard.Seq - shard.Waiting
		}
	}
	return at, nil
}
