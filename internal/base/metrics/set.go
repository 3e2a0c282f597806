package metrics

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Set contains the metrics of one process.
type Set struct {
	registry prometheus.Registerer // adds the label deployment to each metric
	gatherer prometheus.Gatherer
}

// New returns the Set of a process, with the metrics of the Go runtime, the process and the build. Each metric has the
// constant label deployment, so that deployments which share a Prometheus stay apart.
func New(command, version, deployment string) *Set {
	r := prometheus.NewRegistry()
	s := &Set{prometheus.WrapRegistererWith(prometheus.Labels{"deployment": deployment}, r), r}
	// The Go collector exports go_memstats_alloc_bytes as a gauge, and as a counter with the suffix _total. OpenMetrics
	// does not allow two families of one name, so these metrics are off.
	s.registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(),
		collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsMemory)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.gauge(BuildInfo).WithLabelValues(command, version).Set(1)
	return s
}

// Settings are the knobs that alert rules depend on.
type Settings struct {
	// UnsafeAllow lists the checks that are off. AuditMaxAge is the highest normal age of the last audit.
	UnsafeAllow []string
	AuditMaxAge time.Duration
}

// Settings exports knobs.
func (s *Set) Settings(of Settings) {
	unsafe := s.gauge(UnsafeAllow)
	for _, check := range of.UnsafeAllow {
		unsafe.WithLabelValues(check).Set(1)
	}
	s.gauge(AuditMaxAge).WithLabelValues().Set(of.AuditMaxAge.Seconds())
}

// Handler serves scrapes. It uses the OpenMetrics format on request, because only this format has exemplars.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

func (s *Set) counter(m *Metric) *prometheus.CounterVec {
	m.is(Counter)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.registry.MustRegister(c)
	return c
}

func (s *Set) gauge(m *Metric) *prometheus.GaugeVec {
	m.is(Gauge)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.registry.MustRegister(g)
	return g
}

func (s *Set) histogram(m *Metric) *prometheus.HistogramVec {
	m.is(Histogram)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
	s.registry.MustRegister(h)
	return h
}

// is panics if the table defines another kind for the metric. This can only be a bug, and the package's tests find it.
func (m *Metric) is(k Kind) {
	if m.Kind != k {
		panic("metrics: " + m.Name + " is a " + string(m.Kind) + ", not a " + string(k))
	}
}

// polled is a collector that calls read at each scrape.
type polled struct {
	metrics []*Metric
	descs   map[*Metric]*prometheus.Desc
	read    func(add func(m *Metric, value float64, labels ...string))
}

func newPolled(read func(add func(m *Metric, value float64, labels ...string)), of ...*Metric) *polled {
	p := &polled{metrics: of, descs: map[*Metric]*prometheus.Desc{}, read: read}
	for _, m := range of {
		p.descs[m] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return p
}

// Describe implements prometheus.Collector.
func (p *polled) Describe(to chan<- *prometheus.Desc) {
	for _, m := range p.metrics {
		to <- p.descs[m]
	}
}

// Collect implements prometheus.Collector.
func (p *polled) Collect(to chan<- prometheus.Metric) {
	p.read(func(m *Metric, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if m.Kind == Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(p.descs[m], kind, value, slices.Clone(labels)...)
	})
}
