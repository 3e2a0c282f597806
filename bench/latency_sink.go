package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/producer"
)

// latecome is how long a run waits for the sink after the last grab. Grants that arrive later count as lost.
const latecome = time.Minute

// arrivals records when each user got the answer, and when the sink got the grant.
type arrivals struct {
	start          time.Time
	answered, done []atomic.Int64 // time since start; 0 if not yet
	left           atomic.Int64
	all            chan struct{} // closed when the sink has all grants
	took           time.Duration // time from start until all is closed
}

func newArrivals(n int) *arrivals {
	a := &arrivals{start: time.Now(), answered: make([]atomic.Int64, n), done: make([]atomic.Int64, n),
		all: make(chan struct{})}
	a.left.Store(int64(n))
	return a
}

// arrived records that the sink has a user's grant.
func (a *arrivals) arrived(user string) {
	i, err := strconv.Atoi(user[1:])
	if err == nil && a.done[i].CompareAndSwap(0, int64(time.Since(a.start))) && a.left.Add(-1) == 0 {
		a.took = time.Since(a.start)
		close(a.all)
	}
}

// histogram returns the times from the user's answer until the sink has the grant, after the warm-up. A sink may have
// the grant before the user has the answer; that counts as 1 us.
func (a *arrivals) histogram(l *openLoop) *hdrhistogram.Histogram {
	h := newHistogram()
	for i := range l.n() {
		if l.counted(i) {
			_ = h.RecordValue(max(1, (a.done[i].Load()-a.answered[i].Load())/1000))
		}
	}
	return h
}

// timed is a handler that records when it has handled a grant.
type timed struct {
	hongbao.Handler
	*arrivals
}

// Handle implements hongbao.Handler.
func (t timed) Handle(ctx context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	errs := t.Handler.Handle(ctx, batch)
	for i := range grants {
		if i >= len(errs) || errs[i] == nil {
			t.arrived(grants[i].User)
		}
	}
	return errs
}

// toSink makes users grab at the given load while a consumer delivers their grants to a handler. It returns once the
// sink has all grants.
func (r *fixture) toSink(ctx context.Context, st *store.Store, group string, h hongbao.Handler, l *openLoop,
	a *arrivals) error {
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler = deployment.Of(st, zap.NewNop()), group, h
	c, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	err = r.grabbing(ctx, st, func(p *producer.Producer) error {
		return l.run(ctx, func(ctx context.Context, i int) error {
			err := grab(ctx, p, deviceGrab(i), hongbao.OutcomeGranted)
			a.answered[i].Store(int64(time.Since(a.start)))
			return err
		})
	})
	late := time.NewTimer(latecome)
	defer late.Stop()
	select {
	case <-a.all:
	case <-late.C:
		err = errors.Join(err, fmt.Errorf("the sink lacks %d grants after %s", a.left.Load(), latecome))
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	stop()
	return errors.Join(err, <-ended)
}

// latencyRow measures how long a sink takes to get a grant. The function once makes one run at a load.
func latencyRow(ctx context.Context, o options, name, what string,
	once func(ctx context.Context, l *openLoop) (*arrivals, error)) (Result, error) {
	full, err := once(ctx, &openLoop{closed: o.n(60_000)})
	if err != nil {
		return Result{}, err
	}
	load := &openLoop{rate: float64(len(full.done)) / full.took.Seconds() / 2}
	res := Result{
		Name: name, Unit: "ms (p99)", Most: 100, Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("p99 of the time from a grab's answer to %s, at %.0f grabs/s: half of the rate that producer and sink "+
			"reach together on this machine with 256 callers. Callers arrive at random times for %s a round, the "+
			"first %s not counted; the consumer has its default settings", what, load.rate, loadFor, warmFor),
	}
	all, grabs := newHistogram(), newHistogram()
	var runs []float64
	for range o.rounds {
		a, err := once(ctx, load)
		if err != nil {
			return res, err
		}
		h := a.histogram(load)
		runs = append(runs, p(h, 99))
		all.Merge(h)
		grabs.Merge(load.hist)
	}
	res.compare(runs, nil)
	res.besides("", all)
	res.besides("the grab itself, ", grabs)
	res.Plot = figure("From the answer to "+what, []string{"answer to sink", "the grab itself"},
		[]*hdrhistogram.Histogram{all, grabs})
	return res, nil
}

func latencyLedgerRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	res, err := latencyRow(ctx, o, "latency_ledger", "the commit of its row in PostgreSQL, with fsync",
		func(ctx context.Context, l *openLoop) (*arrivals, error) { return r.ledgerLatency(ctx, db, l) })
	return []Result{res}, errors.Join(err, db.close(), r.close())
}

func (r *fixture) ledgerLatency(ctx context.Context, db *database, l *openLoop) (*arrivals, error) {
	st, err := r.deployment(ctx, 1)
	if err != nil {
		return nil, err
	}
	c, err := r.load(ctx, st, spec("bench", l.n()))
	if err != nil {
		return nil, err
	}
	books, err := db.open(ctx, []ledger.Campaign{c})
	if err != nil {
		return nil, err
	}
	a := newArrivals(l.n())
	err = r.toSink(ctx, st, "balance", timed{books.settler, a}, l, a)
	return a, errors.Join(err, books.end(ctx))
}

func latencyTopicRow(ctx context.Context, o options) ([]Result, error) {
	b, err := newPublishBench(ctx, o.n(100_000))
	if err != nil {
		return nil, err
	}
	res, err := latencyRow(ctx, o, "latency_topic", "the read of its record from Kafka", b.latency)
	return []Result{res}, errors.Join(err, b.close())
}

func (b *publishBench) latency(ctx context.Context, l *openLoop) (*arrivals, error) {
	st, err := b.fixture.deployment(ctx, 1)
	if err != nil {
		return nil, err
	}
	if _, err := b.fixture.load(ctx, st, spec("bench", l.n())); err != nil {
		return nil, err
	}
	topic, err := b.topic(ctx)
	if err != nil {
		return nil, err
	}
	publisher, err := b.sink(st, topic, "none")
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	a := newArrivals(l.n())
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	errs := make([]error, partitions)
	for partition := range partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{b.broker.Addr}, Topic: topic,
			Partition: partition, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 100 * time.Millisecond})
		readers.Go(func() {
			for errs[partition] == nil {
				var m kafka.Message
				if m, errs[partition] = reader.ReadMessage(reading); errs[partition] == nil {
					a.arrived(string(m.Key))
				}
			}
			if reading.Err() != nil { // all were read
				errs[partition] = nil
			}
			errs[partition] = errors.Join(errs[partition], reader.Close())
		})
	}
	err = b.fixture.toSink(ctx, st, "kafka", publisher, l, a)
	stop()
	readers.Wait()
	return a, errors.Join(err, errors.Join(errs...))
}
