package metrics

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hongbao-project/hongbao"
)

// GrabCounts measures grabs, and the calls of the grab script that decide them.
type GrabCounts struct {
	outcomes map[hongbao.Outcome]prometheus.Counter
	errors   map[hongbao.Class]prometheus.Counter
	canceled prometheus.Counter
	took     prometheus.Observer

	calls       *prometheus.CounterVec
	ok          prometheus.Counter
	callSeconds prometheus.Observer
	callGrabs   prometheus.Observer

	mu   sync.Mutex
	seen map[string]time.Time // time of the last call for each campaign
}

// classes are the possible classes of an error.
var classes = []hongbao.Class{hongbao.ClassTransient, hongbao.ClassUnknown, hongbao.ClassPermanent, hongbao.ClassConflict,
	hongbao.ClassBroken}

// Grabs registers the metrics of grabs and returns their counters.
func (s *Set) Grabs() *GrabCounts {
	c := &GrabCounts{outcomes: map[hongbao.Outcome]prometheus.Counter{}, errors: map[hongbao.Class]prometheus.Counter{},
		took: s.histogram(GrabSeconds).WithLabelValues(), calls: s.counter(Calls),
		callSeconds: s.histogram(CallSeconds).WithLabelValues(), callGrabs: s.histogram(CallGrabs).WithLabelValues(),
		seen: map[string]time.Time{}}
	grabs := s.counter(Grabs)
	for _, o := range hongbao.Outcomes() {
		c.outcomes[o] = grabs.WithLabelValues(string(o))
	}
	for _, class := range classes {
		c.errors[class] = grabs.WithLabelValues("error_" + class.String())
	}
	c.canceled = grabs.WithLabelValues("error_canceled")
	c.ok = c.calls.WithLabelValues("ok")
	return c
}

// Grabbed records the outcome and the duration of a grab. ctx is the context of the grab: if the caller has canceled
// it, the error is not counted as one of Hongbao.
func (c *GrabCounts) Grabbed(ctx context.Context, g *hongbao.Grab, outcome hongbao.Outcome, err error, took time.Duration) {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		c.canceled.Inc()
	} else if err != nil {
		c.errors[hongbao.ClassOf(err)].Inc()
	} else if n := c.outcomes[outcome]; n != nil {
		n.Inc()
	}
	observe(c.took, took, g.Trace)
}

// Called records a call of the grab script. From then on, Seen lists its campaign.
func (c *GrabCounts) Called(campaign string, grabs int, took time.Duration, err error) {
	if err == nil {
		c.ok.Inc()
	} else {
		c.calls.WithLabelValues(hongbao.ClassOf(err).String()).Inc()
	}
	c.callSeconds.Observe(took.Seconds())
	c.callGrabs.Observe(float64(grabs))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) >= maxSeen {
		clear(c.seen)
	}
	c.seen[campaign] = time.Now()
}

const (
	// maxSeen limits the number of campaigns in seen.
	maxSeen = 10_000
	// seenFor is how long Seen lists a campaign after its last call.
	seenFor = time.Hour
)

// Seen returns up to most campaigns that had a call within seenFor, the latest first.
func (c *GrabCounts) Seen(most int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, at := range c.seen {
		if time.Since(at) > seenFor {
			delete(c.seen, id)
			continue
		}
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return c.seen[b].Compare(c.seen[a]) })
	return ids[:min(most, len(ids))]
}

// Requests returns a function that wraps the handler of a listener, to count and time its requests.
func (s *Set) Requests() func(listener string, h http.Handler) http.Handler {
	count, took := s.counter(HTTPRequests), s.histogram(HTTPSeconds)
	return func(listener string, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start, answer := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
			h.ServeHTTP(answer, r)
			_, route, _ := strings.Cut(r.Pattern, " ") // set by the mux; empty for an unknown path
			if route == "" {
				route = r.Pattern
			}
			if route == "" {
				route = "none"
			}
			count.WithLabelValues(listener, route, strconv.Itoa(answer.status)).Inc()
			if w.Header().Get("Content-Type") != eventStream {
				took.WithLabelValues(listener, route).Observe(time.Since(start).Seconds())
			}
		})
	}
}

// eventStream is the type of an answer that lasts as long as its page is open, which says nothing about the server.
const eventStream = "text/event-stream"

type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController access to the wrapped writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Connections returns a function that adds by to the number of a listener's open connections.
func (s *Set) Connections() func(listener string, by int) {
	open := s.gauge(Connections)
	return func(listener string, by int) { open.WithLabelValues(listener).Add(float64(by)) }
}
