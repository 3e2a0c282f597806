package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observe records a duration. If the traceparent is sampled, its trace id becomes the exemplar.
func observe(o prometheus.Observer, took time.Duration, traceparent string) {
	if id := TraceID(traceparent); id != "" {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
			return
		}
	}
	o.Observe(took.Seconds())
}

// TraceID returns the trace id of a sampled traceparent, or "" if it is not sampled. The caller must have validated the
// traceparent.
func TraceID(traceparent string) string {
	if len(traceparent) < 55 || strings.IndexByte("13579bdf", traceparent[54]) < 0 {
		return ""
	}
	return traceparent[3:35]
}
