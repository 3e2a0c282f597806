package metrics

// Kind is a metric's type in Prometheus.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one row of the table.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
	// Normal is the value on a normal day, for an operator.
	Normal string
	// Buckets of a histogram.
	Buckets []float64
}

// Group is a part of the table: the metrics that one kind of process, or every process, exports.
type Group struct {
	Title, About string
	Metrics      []*Metric
}

var table []*Group

func group(title, about string) *Group {
	g := &Group{Title: title, About: about}
	table = append(table, g)
	return g
}

func (g *Group) add(m Metric) *Metric {
	g.Metrics = append(g.Metrics, &m)
	return &m
}

// Table lists every metric, in the order of docs/metrics.md.
func Table() []*Group { return table }

// All lists every metric.
func All() (all []*Metric) {
	for _, g := range table {
		all = append(all, g.Metrics...)
	}
	return all
}

var (
	// seconds are the buckets of all times: from the time of one call to Redis up to the end of every timeout.
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	// grants are the buckets of a batch.
	grants = []float64{1, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10000}
	// calls are the buckets of a call's grabs; a call has at most 128.
	calls = []float64{1, 2, 4, 8, 16, 32, 64, 128}
)
