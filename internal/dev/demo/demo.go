// Package demo shows all of Hongbao on servers of its own: simulated users grab, answers of Redis are lost, a worker is
// killed, and an audit ends the demo.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// Demo is one run. It leaves nothing behind.
type Demo struct {
	*app.App
	Packets int64 // of the campaign
	Users   int   // number of users who grab
	Total   int64 // sum of the packets, in minor units
	// Out gets the progress.
	Out io.Writer
	// Done is called with the result, also if the audit found differences.
	Done func(*Result) error
	// Stay, if not nil, continues with the deployment after an audit that agrees; Knobs are the knobs that Stay needs.
	Stay  func(ctx context.Context, d *local.Deployment, tell *local.Teller) error
	Knobs map[string]string

	local   *local.Deployment
	screen  *screen
	faults  *faults.Faults
	started time.Time
	crowd   *crowd
	kills   int
}

const (
	campaignID = "demo"
	workers    = 2
	// rest is how long the killed worker stays down: longer than a lease, so that the other worker takes over.
	rest = 4 * time.Second
)

// Run runs the whole demo. Its error says so if the audit found differences.
func (d *Demo) Run(ctx context.Context) (err error) {
	d.started, d.screen = time.Now(), newScreen(d.Out)
	tell := local.NewTeller(d.screen)
	d.local, err = local.Open(ctx, &local.Options{Workers: workers, Rest: rest, Knobs: d.Knobs, Env: local.ForeignEnv(),
		Tell: tell})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	d.local.Describe(d.screen)
	return d.local.With(ctx, func(a *app.App) error {
		d.App = a
		if err := d.open(ctx); err != nil {
			return err
		}
		return d.local.Working(ctx, func(ctx context.Context) error {
			if err := d.show(ctx, tell); err != nil || d.Stay == nil {
				return err
			}
			return d.Stay(ctx, d.local, tell)
		})
	})
}

// open opens the campaign.
func (d *Demo) open(ctx context.Context) error {
	spec := d.spec()
	stored, err := d.Create(ctx, spec, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.screen, "campaign  %d packets, %s, plan hash %.16s...\n", d.Packets,
		money.Text(spec.Total, spec.Currency), stored.Hash)
	_, err = d.Load(ctx, spec.ID)
	return err
}

// show lets the crowd grab, audits, and reports the result.
func (d *Demo) show(ctx context.Context, tell *local.Teller) (err error) {
	direct := d.local.DirectRedis()
	defer direct.Close()
	if d.faults, err = faults.Of(d.local, direct, tell); err != nil {
		return err
	}
	err = d.rain(ctx)
	d.screen.leave()
	if err != nil {
		return err
	}
	report, err := d.Audit(ctx, audit.Options{})
	if err != nil {
		return err
	}
	if report.Verdict != audit.Agrees {
		err = app.Found("the audit found differences")
	}
	return errors.Join(d.Done(d.result(report)), err)
}

// spec returns a campaign that opened a moment ago.
func (d *Demo) spec() hongbao.Campaign {
	now := time.Now().Truncate(time.Second)
	return campaign.Complete(hongbao.Campaign{
		ID: campaignID, Name: "Spring rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: hongbao.Amount(d.Total),
		Packets: d.Packets,
		Split:   hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: hongbao.Amount(d.Total)},
		From:    now.Add(-time.Minute), To: now.Add(time.Hour), TimeZone: "Asia/Shanghai", Sponsor: "acme",
		Durability: hongbao.DurabilityFast,
	})
}

// rain lets the crowd grab while the worker works, kills and restarts it once, and waits until all is delivered.
func (d *Demo) rain(ctx context.Context) error {
	var err error
	if d.crowd, err = newCrowd(d); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	grabbed, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		grabbed <- d.crowd.run(ctx)
	}()
	defer func() { stop(); <-ended }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(time.Minute + time.Duration(d.Packets)*time.Millisecond)
	for over := false; ; {
		at, err := d.standing(ctx)
		if err != nil {
			return err
		}
		d.progressed(at)
		switch {
		case d.kills == 0 && at.settled > 0 && at.granted >= min(d.Packets, int64(d.Users))/3:
			if err := d.faults.Cause(ctx, faults.KillWorker); err != nil {
				return err
			}
			d.kills++
		case over && at.settled == at.granted && at.published == at.granted:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("not all is delivered in time: %d granted, %d settled, %d published", at.granted, at.settled,
				at.published)
		}
		select {
		case err := <-grabbed:
			if err != nil {
				return err
			}
			over = true
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// standing is the progress of the demo, in grants.
type standing struct{ granted, settled, published int64 }

// standing reads the progress of each consumer group from Redis.
func (d *Demo) standing(ctx context.Context) (standing, error) {
	s, err := d.Status(ctx)
	if err == nil {
		err = s.CheckRead()
	}
	if err != nil {
		return standing{}, err
	}
	at := standing{}
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
