package cli

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// spans is a trace collector that receives OTLP over HTTP.
type spans struct {
	*httptest.Server
	mu  sync.Mutex
	all map[string][]*otlp.Span // by service name
}

func collect(t *testing.T) *spans {
	t.Helper()
	s := &spans{all: map[string][]*otlp.Span{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		data, err := io.ReadAll(body)
		var call collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &call)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Error(r.URL.Path, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, of := range call.ResourceSpans {
			name := ""
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					name = a.Value.GetStringValue()
				}
			}
			for _, scope := range of.ScopeSpans {
				s.all[name] = append(s.all[name], scope.Spans...)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// of returns the spans of a service in a trace, by their names. If a name occurs several times, because a slow machine
// retries calls, it returns the last one.
func (s *spans) of(service, trace string) map[string]*otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*otlp.Span{}
	for _, span := range s.all[service] {
		if hex.EncodeToString(span.TraceId) == trace {
			out[span.Name] = span
		}
	}
	return out
}

const (
	callersTrace  = "0af7651916cd43dd8448eb211c80319c"
	callersParent = "00-" + callersTrace + "-b7ad6b7169203331-01"
)

// traced sends a grab with a traceparent header.
func (g *grabber) traced(campaign, user, parent string) {
	g.t.Helper()
	req := g.request("POST", "/v1/campaigns/"+campaign+"/grabs", "k1", user, "{}")
	req.Header.Set("Traceparent", parent)
	res, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	require.NoError(g.t, res.Body.Close())
	require.Equal(g.t, http.StatusOK, res.StatusCode)
}

// The caller's trace has spans of three programs: the grab, its call to Redis, both sinks, and the balance system. The
// record in the topic has the trace, too. A grab without a trace produces no span.
func TestOneTraceFromGrabToSinks(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	c, addr := collect(t), testkit.FreeAddr(t)
	d.set("TRACING_ENDPOINT", c.URL, "TRACING_ONE_IN", "0", "SETTLEMENT_KIND", "remote", "REMOTE_URL", "http://"+addr,
		"REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION", "24h", "REMOTE_QUERYABLE", "true", "REMOTE_CLAIM_TIME", "2s",
		"REMOTE_TIMEOUT", "1s", "REMOTE_HEADER_TIMEOUT", "900ms")
	bank := startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"), "HONGBAO_TRACING_ENDPOINT="+c.URL)
	g := d.serve()
	g.traced("rain", "u1", callersParent)
	g.traced("rain", "u2", callersParent[:54]+"0")
	g.traced("rain", "u3", "no traceparent at all")
	g.grab("rain", "u4", "r1")
	ops := g.ops("serving grabs", "ops") + "/metrics"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ops, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Regexp(t, `hongbao_grab_seconds_bucket\{deployment="[^"]+",le="[^"]+"\} \d+ # \{trace_id="`+callersTrace+`"\}`, string(text))
	w := d.start("work")
	w.says(`"working"`)
	d.quiet()
	w.stop(syscall.SIGTERM)
	for _, p := range []*program{g.program, bank} {
		p.Signal(syscall.SIGTERM)
		require.Zero(t, p.wait(30*time.Second).code)
	}

	serve, work, balance := c.of("hongbao-serve", callersTrace), c.of("hongbao-work", callersTrace),
		c.of("hongbao-balance", callersTrace)
	const request, credit = "POST /v1/campaigns/{id}/grabs", "POST /v1/credits"
	require.Len(t, serve, 3, "%v", serve)
	require.Len(t, work, 2, "%v", work)
	require.Len(t, balance, 1, "%v", balance)
	require.Equal(t, callersParent[36:52], hex.EncodeToString(serve[request].ParentSpanId))
	require.Equal(t, serve[request].SpanId, serve["grab"].ParentSpanId)
	for _, child := range []*otlp.Span{serve["redis grab.lua"], work["sink balance"], work["sink kafka"], balance[credit]} {
		require.Equal(t, serve["grab"].SpanId, child.ParentSpanId, child.Name)
	}
	c.mu.Lock()
	require.Len(t, c.all["hongbao-serve"], 4, "the spans of the traced grab and of its call")
	c.mu.Unlock()

	var headers []string
	for _, m := range d.records() {
		for _, h := range m.Headers {
			if h.Key == cloudevent.HeaderTrace || h.Key == cloudevent.HeaderParent {
				headers = append(headers, string(h.Value))
			}
		}
	}
	parent := "00-" + callersTrace + "-" + hex.EncodeToString(serve["grab"].SpanId) + "-01"
	require.Equal(t, []string{parent, parent}, headers, "ce_traceparent and traceparent")
}

// Deliveries that the administration API makes are measured and traced like those of a worker.
func TestRequeueByAPIIsMeasuredAndTraced(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	c, control := collect(t), testkit.FreeAddr(t)
	d.set("TRACING_ENDPOINT", c.URL, "TRACING_ONE_IN", "0")
	g := d.serve("--control.listen=" + control)
	g.traced("rain", "u1", callersParent)
	d.buried(configs.SinkKafka)
	a := &administrator{t, "http://" + control, d.key("operator")}
	var report struct{ Resolved int64 }
	status := a.post("/v1/dead-letters/requeue", `{"sink":"kafka","expect":1,"why":"the account is open"}`, "k1", &report)
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, 1, report.Resolved)
	require.Len(t, d.records(), 1)
	metrics := scrape(t, g.ops("serving grabs", "ops"), d.id())
	require.Regexp(t, `hongbao_kafka_request_seconds_count\{request="Produce"\} [1-9]`, metrics)
	g.Signal(syscall.SIGTERM)
	require.Zero(t, g.wait(30*time.Second).code)
	require.Contains(t, c.of("hongbao-serve", callersTrace), "sink kafka")
}

// The collector is down or hangs. Grabs and settlements continue, and a process ends with only a short delay.
func TestCollectorIsAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	const lost = "spans are lost, tracing continues"
	for name, c := range map[string]struct{ endpoint, line string }{
		"away": {"http://" + testkit.FreeAddr(t), lost},
		// A process may run longer than the time limit of a call. Then it has already dropped the spans when it ends.
		"hangs": {"http://" + l.Addr().String(), "the collector did not get the last spans|" + lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{})
			d.campaign("rain", 10, 1000)
			d.set("TRACING_ENDPOINT", c.endpoint, "TRACING_ONE_IN", "1")
			g := d.serve()
			for _, user := range []string{"u1", "u2", "u3"} {
				require.Equal(t, "granted", g.grab("rain", user, "r1").Outcome)
			}
			w := d.start("work")
			w.says(`"working"`)
			d.quiet()
			d.ok("audit", "--wait", "20s")
			r := w.stop(syscall.SIGTERM)
			require.Regexp(t, c.line, r.err)
			g.Signal(syscall.SIGTERM)
			r = g.wait(30 * time.Second)
			require.Zero(t, r.code, r.err)
			require.Regexp(t, c.line, r.err)
		})
	}
}
