// Package demo shows all of Hongbao on servers of its own: simulated users grab, answers of Redis are lost, a worker is
// killed, and an audit ends it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/configs"
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

	dir     string
	env     []string // the configuration of the demo and of its worker
	started time.Time
	worker  *exec.Cmd
	crowd   *crowd
	kills   int
	shown   int64 // tenths
}

const campaignID = "demo"

// Run is all of the demo, up to the audit's report. A Result may come with an error: the audit found differences.
func (d *Demo) Run(ctx context.Context) (result *Result, err error) {
	d.started = time.Now()
	dir, sweeper, err := makeFolder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sweeper.sweep()) }()
	d.dir = dir
	servers, err := d.startServers()
	defer func() { err = errors.Join(err, servers.close()) }()
	if err != nil {
		return nil, err
	}
	if err := d.configure(servers); err != nil {
		return nil, err
	}
	defer d.Shut(&err)
	if _, err := d.Init(ctx); err != nil {
		return nil, err
	}
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
	if err := d.startWorker(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stopWorker()) }()
	if err := d.rain(ctx); err != nil {
		return nil, err
	}
	if err := d.stopWorker(); err != nil {
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

// configure makes the configuration of the demo, which its worker gets through the environment. Times are short, so
// that a killed worker's grants are taken over within seconds.
func (d *Demo) configure(s *servers) error {
	set := map[string]string{
		"REDIS_ADDRS": s.redisAddr, "REDIS_READ_TIMEOUT": "900ms", "REDIS_POOL_TIMEOUT": "900ms",
		"LEDGER_DRIVER": "sqlite", "LEDGER_DSN": filepath.Join(d.dir, "ledger.db"),
		"KAFKA_BROKERS": s.kafkaAddr, "KAFKA_PARTITIONS": fmt.Sprint(partitions),
		"CONSUMER_LEASE": "3s", "CONSUMER_POLL": "200ms", "CONSUMER_BLOCK": "200ms",
		"PUBLISHER_REQUEST_TIMEOUT": "1s", "PUBLISHER_ATTEMPT_TIME": "2s", "PUBLISHER_MAX_CLAIM_AGE": "2s",
		"CONSUMER_BATCH_GRANTS": "500", "LOG_LEVEL": "error",
	}
	if s.mini != nil {
		set["UNSAFE_ALLOW"] = configs.UnsafeRedis + "," + configs.UnsafeRedisRunID
	}
	for name, value := range set {
		d.env = append(d.env, "HONGBAO_"+name+"="+value)
	}
	slices.Sort(d.env)
	cfg, err := configs.Load("", d.env, nil)
	if err != nil {
		return fmt.Errorf("the demo's own configuration: %w", err)
	}
	d.App, err = app.New(cfg)
	return err
}

// startWorker starts `hongbao work` as a process of its own.
func (d *Demo) startWorker() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	d.worker = exec.Command(self, "work")
	d.worker.Env = append(foreignEnv(), d.env...)
	d.worker.Stderr = os.Stderr
	dieWithParent(d.worker)
	if err := d.worker.Start(); err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	return nil
}

// killWorker ends the worker as a crash does.
func (d *Demo) killWorker() error {
	if err := d.worker.Process.Kill(); err != nil {
		return fmt.Errorf("kill the worker: %w", err)
	}
	_ = d.worker.Wait() // says that it was killed
	d.worker = nil
	d.kills++
	return nil
}

// stopWorker asks the worker to drain and waits for it. A second call does nothing.
func (d *Demo) stopWorker() error {
	if d.worker == nil {
		return nil
	}
	w := d.worker
	d.worker = nil
	if err := w.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	err := w.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys() == syscall.WaitStatus(syscall.SIGINT) {
		return nil // it was asked to stop before it could listen: it had nothing in hand
	}
	if err != nil {
		return fmt.Errorf("the worker: %w", err)
	}
	return nil
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
			if err := errors.Join(d.killWorker(), d.startWorker()); err != nil {
				return err
			}
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
