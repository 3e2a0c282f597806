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

// Tally has a worker's counters for one sink, and the current states of its shards.
type Tally struct {
	// Counts has the values of the metrics whose only label is sink.
	Counts map[*Metric]int64
	// Incidents counts incidents by code.
	Incidents map[string]int64
	// Shards counts shards by state.
	Shards map[string]int
	// LastSteps has the time of the last step on each shard. It is empty while the sink is not open.
	LastSteps []time.Time
}

// Sinks measures the sinks of a process: the calls of their handlers, and their workers' counters.
type Sinks struct {
	results        *prometheus.CounterVec
	seconds, sizes *prometheus.HistogramVec

	mu      sync.Mutex
	tallies map[string]func() Tally
}

// Sinks registers the metrics of sinks.
func (s *Set) Sinks() *Sinks {
	w := &Sinks{results: s.counter(SinkResults), seconds: s.histogram(SinkSeconds), sizes: s.histogram(SinkGrants),
		tallies: map[string]func() Tally{}}
	s.registry.MustRegister(newPolled(w.read, SinkShards, WorkerLastStep, WorkerDone, WorkerDead, WorkerParked,
		WorkerHanded, WorkerTaken, WorkerSkipped, WorkerOutages, WorkerLeases, WorkerIncidents, RemoteBreaker))
	return w
}

// Tally exports the counters of a sink's worker. Each scrape calls tally.
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

// Handler wraps a sink's handler and measures its calls.
func (w *Sinks) Handler(sink string, h hongbao.Handler) hongbao.Handler {
	return &measured{Handler: h, seconds: w.seconds.WithLabelValues(sink), sizes: w.sizes.WithLabelValues(sink),
		results: w.results.MustCurryWith(prometheus.Labels{"sink": sink})}
}

var resultOf = map[hongbao.Class]string{
	hongbao.ClassTransient: hongbao.ClassTransient.String(), hongbao.ClassUnknown: hongbao.ClassUnknown.String(),
	hongbao.ClassPermanent: hongbao.ClassPermanent.String(), hongbao.ClassConflict: hongbao.ClassConflict.String(),
	hongbao.ClassBroken: hongbao.ClassBroken.String(),
}

// allResults are the possible values of the label result.
var allResults = append(slices.Collect(maps.Values(resultOf)), "done", "waiting", "outage")

// measured is a handler with metrics.
type measured struct {
	hongbao.Handler
	seconds, sizes prometheus.Observer
	results        *prometheus.CounterVec // labels shard and result
}

// Handle implements hongbao.Handler.
func (m *measured) Handle(ctx context.Context, b hongbao.Batch) []error {
	start, grants := time.Now(), b.Grants
	errs := m.Handler.Handle(ctx, b)
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
	shard := strconv.Itoa(b.Shard)
	for _, r := range allResults { // also results with 0: each series must exist before its first increase
		m.results.WithLabelValues(shard, r).Add(float64(results[r]))
	}
	return errs
}

func result(err error) string {
	switch {
	case hongbao.IsWaiting(err):
		return "waiting"
	case hongbao.IsOutage(err):
		return "outage"
	}
	return resultOf[hongbao.ClassOf(err)]
}

// Published has the counters of a process' publishers.
type Published struct{ Batches, Resends, TakenOver int64 }

// Publisher exports the counters of this process' publishers. Each scrape calls count.
func (s *Set) Publisher(count func() Published) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		n := count()
		add(PublishBatches, float64(n.Batches))
		add(PublishResends, float64(n.Resends))
		add(PublishTaken, float64(n.TakenOver))
	}, PublishBatches, PublishResends, PublishTaken))
}
