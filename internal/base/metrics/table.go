package metrics

// Kind is a metric's type in Prometheus.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
	// Normal tells operators which values are normal.
	Normal string
	// Buckets are the bucket limits of a histogram.
	Buckets []float64
}

// Group is a section of the table: the metrics of one kind of process, or those of every process.
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

// Table returns all groups, in the order of docs/metrics.md.
func Table() []*Group { return table }

// All returns the metrics of all groups.
func All() (all []*Metric) {
	for _, g := range table {
		all = append(all, g.Metrics...)
	}
	return all
}

var (
	// seconds are the buckets of every duration: from one call to Redis to the longest timeout.
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	// grants are the buckets for the grants of a batch.
	grants = []float64{1, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10000}
	// calls are the buckets for the grabs of a call, at most 128.
	calls = []float64{1, 2, 4, 8, 16, 32, 64, 128}
)
