package tracing

import (
	"context"
	"errors"
	"fmt"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	sampling = "00-" + traceID + "-b7ad6b7169203331-01"
	ignoring = "00-" + traceID + "-b7ad6b7169203331-00"
	grabPath = "/v1/campaigns/rain/grabs"
)

// bundle has a Tracer that stores its spans in memory, and a traced HTTP handler for grabs.
type bundle struct {
	*Tracer
	spans *tracetest.InMemoryExporter
	mux   *http.ServeMux
	http  http.Handler
	grabs []hongbao.Grab // that were decided
}

func setup(o Options) *bundle {
	if o.PerSecond == 0 {
		o.PerSecond = 100_000
	}
	b := &bundle{spans: tracetest.NewInMemoryExporter(), mux: http.NewServeMux()}
	b.Tracer = with(sdktrace.NewSimpleSpanProcessor(b.spans), resource.Empty(), o)
	b.mux.HandleFunc("POST /v1/campaigns/{id}/grabs", func(w http.ResponseWriter, r *http.Request) {
		g := hongbao.Grab{Campaign: r.PathValue("id"), User: "a-user", RequestID: "a-request"}
		_, err := b.Grab(r.Context(), &g, func(_ context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
			b.grabs = append(b.grabs, *g)
			if g.Campaign == "down" {
				return hongbao.Answer{}, hongbao.Outagef(hongbao.ClassUnknown, "no answer for a-user")
			}
			return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Receipts: []hongbao.Receipt{{Shard: 2, Seq: 7, Packet: 3}}}, nil
		})
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	b.mux.HandleFunc("GET /v1/campaigns/{id}", func(http.ResponseWriter, *http.Request) {})
	b.http = b.Requests(b.mux)
	return b
}

// send sends a request with the given traceparent headers.
func (b *bundle) send(method, path string, traceparents ...string) {
	r := httptest.NewRequest(method, path, nil)
	for _, t := range traceparents {
		r.Header.Add("traceparent", t)
	}
	b.http.ServeHTTP(httptest.NewRecorder(), r)
}

// span returns the spans that have the name.
func (b *bundle) span(name string) (found tracetest.SpanStubs) {
	for _, s := range b.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attributes(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

// A request with exactly one valid traceparent is traced if its sampled flag is set. Otherwise one request in OneIn is
// traced. The grab of an untraced request has no traceparent.
func TestWhichGrabsAreTraced(t *testing.T) {
	t.Parallel()
	long := "cc" + sampling[2:] + "-"
	for name, c := range map[string]struct {
		oneIn   int
		parents []string
		traced  bool
		joins   bool // the caller's trace
	}{
		"none, 0":                 {0, nil, false, false},
		"none, 1":                 {1, nil, true, false},
		"sampled, 0":              {0, []string{sampling}, true, true},
		"sampled, 1":              {1, []string{sampling}, true, true},
		"not sampled, 0":          {0, []string{ignoring}, false, false},
		"not sampled, 1":          {1, []string{ignoring}, false, false},
		"two, 0":                  {0, []string{sampling, sampling}, false, false},
		"two, 1":                  {1, []string{sampling, sampling}, true, false},
		"empty":                   {0, []string{""}, false, false},
		"short":                   {0, []string{sampling[:54]}, false, false},
		"glued":                   {0, []string{sampling + "x"}, false, false},
		"longer than its version": {0, []string{sampling + "-x"}, false, false},
		"later version":           {0, []string{long + "x"}, true, true},
		"later version, too long": {0, []string{long + strings.Repeat("x", 100)}, false, false},
		"hostile, 0":              {0, []string{strings.Repeat("0", 1<<20)}, false, false},
		"hostile, 1":              {1, []string{long + strings.Repeat("-", 1<<20)}, true, false},
		"version ff":              {0, []string{"ff" + sampling[2:]}, false, false},
		"upper case":              {0, []string{strings.ToUpper(sampling)}, false, false},
		"zero trace":              {0, []string{"00-" + strings.Repeat("0", 32) + sampling[35:]}, false, false},
		"zero parent":             {0, []string{sampling[:36] + strings.Repeat("0", 16) + "-01"}, false, false},
		"control characters":      {0, []string{sampling[:54] + "\x00"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(Options{OneIn: c.oneIn})
			b.send("POST", grabPath, c.parents...)
			require.Len(t, b.grabs, 1, "untraced grabs are decided, too")
			if !c.traced {
				require.Empty(t, b.spans.GetSpans())
				require.Empty(t, b.grabs[0].Trace)
				return
			}
			root, grab := b.span("POST /v1/campaigns/{id}/grabs"), b.span("grab")
			require.Len(t, root, 1)
			require.Len(t, grab, 1)
			require.Equal(t, c.joins, root[0].SpanContext.TraceID().String() == traceID)
			require.Equal(t, c.joins, root[0].Parent.IsValid())
			require.Equal(t, root[0].SpanContext.SpanID(), grab[0].Parent.SpanID())
			of := spanOf(b.grabs[0].Trace)
			require.Equal(t, grab[0].SpanContext.TraceID(), of.TraceID())
			require.Equal(t, grab[0].SpanContext.SpanID(), of.SpanID())
			require.True(t, of.IsSampled())
			require.NoError(t, b.grabs[0].Check(), "a producer accepts the grab")
			require.Len(t, b.grabs[0].Trace, 55, "however long the caller's was")
		})
	}
}

// At most PerSecond requests a second are traced, with and without a sampled traceparent.
func TestTracesAreBounded(t *testing.T) {
	t.Parallel()
	for _, parents := range [][]string{nil, {sampling}} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(Options{OneIn: 1, PerSecond: 3})
			for range 50 {
				b.send("POST", grabPath, parents...)
			}
			require.Len(t, b.span("grab"), 3)
			<-time.NewTimer(time.Second).C
			for range 50 {
				b.send("POST", grabPath, parents...)
			}
			require.Len(t, b.span("grab"), 6)
			require.Len(t, b.grabs, 100)
		})
	}
}

// Callers that send a sampled traceparent do not use up the traces that this process starts.
func TestStrangersTakeNoSample(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(Options{OneIn: 1, PerSecond: 3})
		for range 50 {
			b.send("POST", "/no/such/path", sampling)
		}
		require.Len(t, b.span("POST"), 3)
		b.send("POST", grabPath)
		require.Len(t, b.span("grab"), 1)
	})
}

func TestOneIn(t *testing.T) {
	t.Parallel()
	b := setup(Options{OneIn: 10})
	for range 10_000 {
		b.send("POST", grabPath)
	}
	require.InDelta(t, 1000, len(b.span("grab")), 250)
}

// GET requests are not traced: they read a campaign or receipts.
func TestOnlyGrabsAreTraced(t *testing.T) {
	t.Parallel()
	b := setup(Options{OneIn: 1})
	b.send("GET", "/v1/campaigns/rain", sampling)
	require.Empty(t, b.spans.GetSpans())
	b.send("POST", "/no/such/path", sampling)
	require.Len(t, b.span("POST"), 1)
	require.Equal(t, "404", attributes(b.span("POST")[0])["http.response.status_code"])
}

// One trace contains the request, the grab, the call to Redis, and the call of each sink. Each call also has a span of
// its own, with links to the traced grabs. No span contains the user id.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	b := setup(Options{})
	b.send("POST", grabPath, sampling)
	of := b.grabs[0].Trace
	b.Called("rain", 5, []string{of, "00-" + strings.Repeat("1", 32) + "-b7ad6b7169203331-00"}, time.Second, nil)
	var seen []hongbao.Grant
	h := b.Sink("balance", "", hongbao.HandlerFunc(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		seen = slices.Clone(grants)
		return []error{nil, hongbao.Errorf(hongbao.ClassPermanent, "account a-user is closed"), nil}
	}))
	grants := []hongbao.Grant{{Shard: 2, Seq: 6, User: "a-user", Code: "a-code"},
		{Shard: 2, Seq: 7, Campaign: "rain", Packet: 3, EntryID: "17-0", User: "a-user", Amount: 77777, Code: "a-code", Trace: of},
		{Shard: 2, Seq: 8, Trace: "hardly a traceparent"}}
	errs := h.Handle(t.Context(), testkit.Batch(grants))
	require.Error(t, errs[1])
	require.Equal(t, grants, seen, "the handler gets the grants unchanged")

	grab := b.span("grab")[0]
	require.Equal(t, map[string]string{"hongbao.campaign": "rain", "hongbao.outcome": "granted", "hongbao.event": "2-7",
		"hongbao.packet": "3"}, attributes(grab))
	for name, size := range map[string]string{"redis grab.lua": "hongbao.grabs", "sink balance": "messaging.batch.message_count"} {
		own, whole := b.span(name), b.span(name+", whole call")
		require.Len(t, own, 1, name)
		require.Len(t, whole, 1, name)
		require.Equal(t, traceID, own[0].SpanContext.TraceID().String())
		require.Equal(t, grab.SpanContext.SpanID(), own[0].Parent.SpanID())
		require.Equal(t, whole[0].SpanContext.SpanID(), own[0].Links[0].SpanContext.SpanID())
		require.NotEqual(t, traceID, whole[0].SpanContext.TraceID().String())
		require.False(t, whole[0].Parent.IsValid())
		require.Len(t, whole[0].Links, 1, "only to the traced grab")
		require.Equal(t, grab.SpanContext.SpanID(), whole[0].Links[0].SpanContext.SpanID())
		require.Contains(t, attributes(whole[0]), size)
		require.Equal(t, own[0].StartTime, whole[0].StartTime)
	}
	redis, sink := b.span("redis grab.lua")[0], b.span("sink balance")[0]
	require.Equal(t, time.Second, redis.EndTime.Sub(redis.StartTime))
	require.Equal(t, "5", attributes(redis)["hongbao.grabs"])
	require.Equal(t, "permanent", sink.Status.Description)
	require.Equal(t, "17-0", attributes(sink)["hongbao.entry"])
	require.Equal(t, "2-7", attributes(sink)["hongbao.event"])
	for _, s := range b.spans.GetSpans() {
		require.NotRegexp(t, "a-user|a-request|a-code|77777", fmt.Sprint(s.Name, s.Status, attributes(s), s.Events))
	}
}

// Spans have the names and the kinds of OpenTelemetry's semantic conventions.
func TestSemanticConventions(t *testing.T) {
	t.Parallel()
	b := setup(Options{})
	b.send("POST", "/v1/campaigns/rain/grabs", sampling)
	b.send("POST", "/a-user/unknown", sampling)
	b.Called("rain", 1, []string{b.grabs[0].Trace}, time.Second, nil)
	done := hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil })
	for sink, topic := range map[string]string{"kafka": "grants", "balance": ""} {
		b.Sink(sink, topic, done).Handle(t.Context(), testkit.Batch([]hongbao.Grant{{Trace: sampling}}))
	}
	for name, want := range map[string]struct {
		kind trace.SpanKind
		has  map[string]string
	}{
		"POST /v1/campaigns/{id}/grabs": {trace.SpanKindServer, map[string]string{"http.request.method": "POST",
			"http.route": "/v1/campaigns/{id}/grabs", "url.path": "/v1/campaigns/rain/grabs"}},
		"redis grab.lua": {trace.SpanKindClient, map[string]string{"db.system.name": "redis", "db.operation.name": "EVALSHA"}},
		"sink kafka": {trace.SpanKindProducer, map[string]string{"messaging.system": "kafka",
			"messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.destination.name": "grants"}},
		"sink balance": {trace.SpanKindConsumer, map[string]string{"messaging.system": "redis",
			"messaging.operation.name": "process", "messaging.operation.type": "process"}},
	} {
		span := b.span(name)
		require.NotEmpty(t, span, name)
		require.Equal(t, want.kind, span[0].SpanKind, name)
		require.Subset(t, attributes(span[0]), want.has, name)
	}
	for _, s := range b.spans.GetSpans() {
		require.NotContains(t, fmt.Sprint(s.Name, attributes(s)), "a-user")
	}
}

// The span of a failed call has the class of the error as its status.
func TestFailures(t *testing.T) {
	t.Parallel()
	b := setup(Options{})
	b.send("POST", "/v1/campaigns/down/grabs", sampling)
	b.Called("down", 1, []string{b.grabs[0].Trace}, time.Second, hongbao.Outagef(hongbao.ClassUnknown, "Redis is down"))
	for _, err := range []error{hongbao.Waitingf("another has it"), errors.New("who knows")} {
		b.Sink("kafka", "grants", hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return []error{err} })).
			Handle(t.Context(), testkit.Batch([]hongbao.Grant{{Trace: sampling}}))
	}
	var got []string
	for _, s := range b.spans.GetSpans() {
		if s.Status.Code.String() == "Error" {
			got = append(got, s.Name+": "+s.Status.Description)
		}
	}
	require.Equal(t, []string{"grab: outage", "POST /v1/campaigns/{id}/grabs: ", "redis grab.lua: outage", "sink kafka: waiting",
		"sink kafka: unknown"}, got)
	require.Equal(t, "outage", attributes(b.span("grab")[0])["error.type"])
}

// Untraced requests, grabs, calls and batches allocate no memory for tracing.
func TestUntracedAllocatesNothing(t *testing.T) {
	b := setup(Options{OneIn: 0})
	do := func(context.Context, *hongbao.Grab) (hongbao.Answer, error) { return hongbao.Answer{}, nil }
	served := b.Requests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	sink := b.Sink("kafka", "grants", hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil }))
	r, w, g := httptest.NewRequest(http.MethodPost, grabPath, nil), httptest.NewRecorder(), &hongbao.Grab{}
	grants, ctx := make([]hongbao.Grant, 2000), t.Context()
	for name, f := range map[string]func(){
		"request": func() { served.ServeHTTP(w, r) },
		"grab":    func() { _, _ = b.Grab(ctx, g, do) },
		"call":    func() { b.Called("rain", 128, nil, time.Second, nil) },
		"sink":    func() { sink.Handle(ctx, testkit.Batch(grants)) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// If the collector accepts connections but never answers, only spans are lost. Requests do not wait for it, and Close
// returns when its context ends.
func TestCollectorThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	tr, err := New(t.Context(), Options{Endpoint: "http://" + l.Addr().String(), OneIn: 1, PerSecond: 100_000, Log: zap.NewNop()})
	require.NoError(t, err)
	h := tr.Requests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 20_000 { // ten queues
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, grabPath, nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tr.Close(ctx), context.DeadlineExceeded)
}

// Close sends the remaining spans. The path /v1/traces is appended to the path of the endpoint.
func TestCloseSendsTheRest(t *testing.T) {
	t.Parallel()
	paths, sizes := make(chan string, 10), make(chan int, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		paths <- r.URL.Path
		sizes <- len(body)
	}))
	defer collector.Close()
	tr, err := New(t.Context(), Options{Endpoint: collector.URL + "/otlp/", OneIn: 1, PerSecond: 1, Log: zap.NewNop()})
	require.NoError(t, err)
	tr.Requests(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, grabPath, nil))
	require.NoError(t, tr.Close(t.Context()))
	require.Equal(t, "/otlp/v1/traces", <-paths)
	require.Positive(t, <-sizes)
}

func BenchmarkUntracedRequest(b *testing.B) {
	s := setup(Options{OneIn: 1_000_000_000})
	h := s.Requests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r, w := httptest.NewRequest(http.MethodPost, grabPath, nil), httptest.NewRecorder()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkUntracedSink(b *testing.B) {
	s := setup(Options{})
	h := s.Sink("kafka", "grants", hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil }))
	grants := make([]hongbao.Grant, 2000)
	for b.Loop() {
		h.Handle(b.Context(), testkit.Batch(grants))
	}
}
