// Package demo shows all of Hongbao on servers of its own: simulated users grab, answers of Redis are lost, a worker is
// killed, and an audit ends it.
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
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/local"
	"github.com/hongbao-project/hongbao/internal/money"
)

// Demo is one run. Nothing of it is left afterwards.
type Demo struct {
	*app.App
	Packets int64 // of the campaign
	Users   int   // who grab
	Total   int64 // sum of the packets, in minor units
	// Out gets the progress.
	Out io.Writer

	local   *local.Deployment
	started time.Time
	crowd   *crowd
	kills   int
	shown   int64 // tenths
}

const (
	campaignID = "demo"
	// rest is how long the worker that is killed stays away.
	rest = time.Second
)

// Run is all of the demo, up to the audit's report. A Result may come with an error: the audit found differences.
func (d *Demo) Run(ctx context.Context) (result *Result, err error) {
	d.started = time.Now()
	d.local, err = local.Open(ctx, &local.Options{Workers: 1, Rest: rest, Env: local.ForeignEnv(),
		Tell: local.NewTeller(d.Out)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	d.local.Describe(d.Out)
	return result, d.local.With(ctx, func(a *app.App) error {
		d.App = a
		result, err = d.run(ctx)
		return err
	})
}

// run is the demo on servers that are there.
func (d *Demo) run(ctx context.Context) (*Result, error) {
	spec := d.spec()
	stored, err := d.Create(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(d.Out, "campaign  %d packets, %s, plan hash %.16s...\n", d.Packets, money.Text(spec.Total, spec.Currency),
		stored.Hash)
	if _, err := d.Load(ctx, spec.ID); err != nil {
		return nil, err
	}
	if err := d.local.Working(ctx, d.rain); err != nil {
		return nil, err
	}
	report, err := d.Audit(ctx, audit.Options{})
	if err != nil {
		return nil, err
	}
	if report.Verdict != audit.Agrees {
		err = app.Found("the audit found differences")
	}
	return d.result(report), err
}

// spec is a campaign that opened a moment ago.
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
		at, err := d.progress(ctx)
		if err != nil {
			return err
		}
		d.show(at)
		switch {
		case d.kills == 0 && at.settled > 0 && at.granted >= min(d.Packets, int64(d.Users))/3:
			if err := d.local.Workers.Kill(1); err != nil {
				return err
			}
			d.kills++
		case over && at.settled == at.granted && at.published == at.granted:
			fmt.Fprintln(d.Out)
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

// standing is how far the demo is, in grants.
type standing struct{ granted, settled, published int64 }

// progress asks Redis how far each consumer group is.
func (d *Demo) progress(ctx context.Context) (standing, error) {
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
