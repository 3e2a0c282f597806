package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observe notes a time, with the trace id of a sampled traceparent as its exemplar.
func observe(o prometheus.Observer, took time.Duration, traceparent string) {
	if id := TraceID(traceparent); id != "" {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
			return
		}
	}
	o.Observe(took.Seconds())
}

// TraceID returns the trace id of a traceparent whose trace is sampled; otherwise it is empty. The traceparent was
// checked before.
func TraceID(traceparent string) string {
	if len(traceparent) < 55 || strings.IndexByte("13579bdf", traceparent[54]) < 0 {
		return ""
	}
	return traceparent[3:35]
}
