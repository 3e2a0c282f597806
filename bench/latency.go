package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	loadFor = 5 * time.Second // duration of the arrivals of a round
	warmFor = time.Second     // grabs in this first part of a round are not counted
)

// percentiles are the percentiles that a figure shows.
var percentiles = []float64{50, 75, 90, 95, 99, 99.5, 99.9}

// openLoop lets callers arrive at random times at a given rate, whether or not earlier callers have their answers. The
// latency counts from the caller's planned arrival, so it includes any wait for a processor (no coordinated omission).
type openLoop struct {
	rate float64
	// closed, if not 0, is the number of grabs of a closed loop instead. Then 256 callers make these grabs as fast as
	// possible, each waiting for its answer before the next grab. rate is then the measured rate.
	closed int

	start time.Time
	mu    sync.Mutex
	hist  *hdrhistogram.Histogram // microseconds
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, 60_000_000, 3) }

// n returns the number of callers.
func (l *openLoop) n() int {
	if l.closed > 0 {
		return l.closed
	}
	return int(l.rate * loadFor.Seconds())
}

// counted reports whether a caller arrives after the warm-up.
func (l *openLoop) counted(i int) bool { return float64(i) >= l.rate*warmFor.Seconds() }

func (l *openLoop) run(ctx context.Context, do func(ctx context.Context, i int) error) (err error) {
	if l.closed > 0 {
		l.rate, err = crowd.Load{Callers: 256, Calls: l.closed}.Run(ctx, func(ctx context.Context, _, i int) error {
			return do(ctx, i)
		})
		return err
	}
	l.start, l.hist = time.Now(), newHistogram()
	var wg sync.WaitGroup
	var failed error
	due := time.Duration(0)
	for i := range l.n() {
		due += time.Duration(rand.ExpFloat64() / l.rate * float64(time.Second)) //nolint:gosec // not a secret
		at := due
		if wait := at - time.Since(l.start); wait > 0 {
			retry.Pause(ctx, wait)
		}
		wg.Go(func() {
			err := do(ctx, i)
			took := time.Since(l.start) - at
			l.mu.Lock()
			defer l.mu.Unlock()
			failed = errors.Join(failed, err)
			if l.counted(i) {
				_ = l.hist.RecordValue(max(1, took.Microseconds())) // below the histogram's maximum
			}
		})
	}
	wg.Wait()
	return failed
}

func p(h *hdrhistogram.Histogram, percentile float64) float64 {
	return float64(h.ValueAtPercentile(percentile)) / 1000
}

// besides adds percentiles of a histogram to the additional figures.
func (r *Result) besides(name string, h *hdrhistogram.Histogram) {
	for _, at := range []float64{50, 99, 99.9} {
		r.Beside[fmt.Sprintf("%sp%v, ms", name, at)] = p(h, at)
	}
}

func figure(title string, names []string, all []*hdrhistogram.Histogram) *Plot {
	out := &Plot{Title: title, Unit: "ms by percentile"}
	for _, at := range percentiles {
		out.X = append(out.X, strconv.FormatFloat(at, 'f', -1, 64))
	}
	for i, h := range all {
		line := Line{Name: names[i]}
		for _, at := range percentiles {
			line.Y = append(line.Y, p(h, at))
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// latencyGrabRow compares the latency of a grab at half load with one EVALSHA of the classic script at the same load.
func latencyGrabRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	res := Result{Name: "latency_grab", Unit: "ms (p99)", Want: 3, Below: true, Beside: map[string]float64{}}
	load, err := r.halfLoad(ctx, o, res.Beside)
	all := []*hdrhistogram.Histogram{newHistogram(), newHistogram()}
	p99 := func(i int, do func(context.Context, *openLoop) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			if err := do(ctx, load); err != nil {
				return 0, err
			}
			all[i].Merge(load.hist)
			return p(load.hist, 99), nil
		}
	}
	if err == nil {
		err = res.inTurn(ctx, o.rounds, p99(1, r.classicLatency), p99(0, r.ourLatency))
	}
	if err = errors.Join(err, r.close()); err != nil {
		return nil, err
	}
	res.HowOurs = fmt.Sprintf("p99 of grabs through one producer at %.0f grabs/s, half of the rate that the slower side reaches with "+
		"256 callers who wait for their answers, on the same connections. Callers arrive at random times, whether "+
		"or not earlier callers have their answers. The latency counts from the planned arrival; %s a round, the "+
		"first %s not counted",
		load.rate, loadFor, warmFor)
	res.HowBaseline = "one EVALSHA of the classic script for each caller, by go-redis with at most 64 connections, at " +
		"the same load"
	for i, name := range []string{"ours, ", "bare EVALSHA, "} {
		res.besides(name, all[i])
	}
	res.Plot = figure("A grab at half load", []string{"hongbao", "bare EVALSHA"}, all)
	return []Result{res}, nil
}

// halfLoad measures the highest rate of both sides in closed loops. It returns an open loop at half the lower rate.
func (r *fixture) halfLoad(ctx context.Context, o options, beside map[string]float64) (*openLoop, error) {
	reaches := func(side func(context.Context, *openLoop) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			l := &openLoop{closed: o.n(60_000)}
			err := side(ctx, l)
			return l.rate, err
		}
	}
	rates, err := inTurn(ctx, o.rounds, reaches(r.classicLatency), reaches(r.ourLatency))
	if err != nil {
		return nil, err
	}
	bare, ours := median(rates[0]), median(rates[1])
	beside["bare EVALSHA, 256 callers who wait, grabs/s"], beside["ours, 256 callers who wait, grabs/s"] = bare, ours
	return &openLoop{rate: min(bare, ours) / 2}, nil
}

func (r *fixture) ourLatency(ctx context.Context, l *openLoop) error {
	st, err := r.deployment(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := r.load(ctx, st, spec("bench", l.n()+1)); err != nil {
		return err
	}
	return r.grabbing(ctx, st, func(p *producer.Producer) error {
		once := func(ctx context.Context, i int) error {
			return grab(ctx, p, deviceGrab(i), hongbao.OutcomeGranted)
		}
		return errors.Join(once(ctx, l.n()), l.run(ctx, once))
	})
}

func (r *fixture) classicLatency(ctx context.Context, l *openLoop) error {
	sha, err := r.classicStock(ctx, l.n())
	if err != nil {
		return err
	}
	return l.run(ctx, func(ctx context.Context, i int) error {
		return r.rdb.EvalSha(ctx, sha, []string{"{s}stock", "{s}consumed", "{s}map", user(i)}).Err()
	})
}
