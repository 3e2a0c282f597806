package metrics

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hongbao-project/hongbao"
)

// Tally is what a worker has counted for a sink, and the present states of its shards.
type Tally struct {
	// Counts are by metric, for the metrics with only the label sink.
	Counts map[*Metric]int64
	// Incidents are counts by code.
	Incidents map[string]int64
	// Shards are counts by state.
	Shards map[string]int
	// LastSteps are by shard; none while the sink is not open.
	LastSteps []time.Time
}

// Sinks measures the work for sinks.
type Sinks struct {
	results        *prometheus.CounterVec
	seconds, sizes *prometheus.HistogramVec

	mu      sync.Mutex
	tallies map[string]func() Tally
}

// Sinks measures the sinks of this process.
func (s *Set) Sinks() *Sinks {
	w := &Sinks{results: s.counter(SinkResults), seconds: s.histogram(SinkSeconds), sizes: s.histogram(SinkGrants),
		tallies: map[string]func() Tally{}}
	s.registry.MustRegister(newPolled(w.read, SinkShards, WorkerLastStep, WorkerDone, WorkerDead, WorkerParked,
		WorkerHanded, WorkerTaken, WorkerSkipped, WorkerOutages, WorkerLeases, WorkerIncidents, RemoteBreaker))
	return w
}

// Tally exports the counts of a sink's worker, read at each scrape.
func (w *Sinks) Tally(sink string, tally func() Tally) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tallies[sink] = tally
}

func (w *Sinks) read(add func(m *Metric, value float64, labels ...string)) {
	w.mu.Lock()
	tallies := maps.Clone(w.tallies)
	w.mu.Unlock()
	for sink, tally := range tallies {
		t := tally()
		for code, n := range t.Shards {
			add(SinkShards, float64(n), sink, code)
		}
		for shard, at := range t.LastSteps {
			add(WorkerLastStep, float64(at.UnixMilli())/1000, sink, strconv.Itoa(shard))
		}
		for m, n := range t.Counts {
			add(m, float64(n), sink)
		}
		for code, n := range t.Incidents {
			add(WorkerIncidents, float64(n), sink, code)
		}
	}
}

// Handler measures a sink's handler.
func (w *Sinks) Handler(sink string, h hongbao.Handler) hongbao.Handler {
	return &measured{Handler: h, seconds: w.seconds.WithLabelValues(sink), sizes: w.sizes.WithLabelValues(sink),
		results: w.results.MustCurryWith(prometheus.Labels{"sink": sink})}
}

var resultOf = map[hongbao.Class]string{
	hongbao.ClassTransient: hongbao.ClassTransient.String(), hongbao.ClassUnknown: hongbao.ClassUnknown.String(),
	hongbao.ClassPermanent: hongbao.ClassPermanent.String(), hongbao.ClassConflict: hongbao.ClassConflict.String(),
	hongbao.ClassBroken: hongbao.ClassBroken.String(),
}

// allResults are the possible results of an attempt.
var allResults = append(slices.Collect(maps.Values(resultOf)), "done", "held", "outage")

// measured measures the calls of a handler.
type measured struct {
	hongbao.Handler
	seconds, sizes prometheus.Observer
	results        *prometheus.CounterVec // by shard and result
}

// Handle implements hongbao.Handler. The grants of a call are of one shard.
func (m *measured) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	start := time.Now()
	errs := m.Handler.Handle(ctx, grants)
	trace := ""
	for i := range grants {
		if trace = grants[i].Trace; TraceID(trace) != "" {
			break
		}
	}
	observe(m.seconds, time.Since(start), trace)
	m.sizes.Observe(float64(len(grants)))
	results := map[string]int{"done": len(grants)}
	for _, err := range errs {
		if err != nil {
			results["done"]--
			results[result(err)]++
		}
	}
	shard := strconv.Itoa(grants[0].Shard)
	for _, r := range allResults { // also those of 0: a series must begin before its first failure
		m.results.WithLabelValues(shard, r).Add(float64(results[r]))
	}
	return errs
}

func result(err error) string {
	switch {
	case hongbao.IsHeld(err):
		return "held"
	case hongbao.IsOutage(err):
		return "outage"
	}
	return resultOf[hongbao.ClassOf(err)]
}

// Published is what a publisher has counted.
type Published struct{ Batches, Resends, TakenOver int64 }

// Publisher exports the counts of this process' publishers, read at each scrape.
func (s *Set) Publisher(count func() Published) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		n := count()
		add(PublishBatches, float64(n.Batches))
		add(PublishResends, float64(n.Resends))
		add(PublishTaken, float64(n.TakenOver))
	}, PublishBatches, PublishResends, PublishTaken))
}
