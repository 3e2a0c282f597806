package tracing

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/hongbao-project/hongbao"
)

// Requests creates a span for each traced POST request. It must wrap every handler that replaces the request, because
// it reads the pattern that the mux stores in the request.
func (t *Tracer) Requests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, traced := r.Context(), false
		if r.Method == http.MethodPost {
			ctx, traced = t.begins(ctx, r.Header["Traceparent"])
		}
		if !traced {
			h.ServeHTTP(w, r)
			return
		}
		ctx, span := t.tracer.Start(ctx, "POST", trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(semconv.HTTPRequestMethodPost))
		defer span.End()
		r = r.WithContext(ctx)
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(answer, r)
		if route := r.Pattern[strings.IndexByte(r.Pattern, ' ')+1:]; route != "" {
			span.SetName("POST " + route)
			span.SetAttributes(semconv.HTTPRoute(route), semconv.URLPath(r.URL.Path)) // unknown paths may be anything
		}
		span.SetAttributes(semconv.HTTPResponseStatusCode(answer.status))
		if answer.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

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

// Grab calls do to decide a grab. If the request is traced, Grab creates a span and stores its traceparent in g, from
// where it gets into the grant.
func (t *Tracer) Grab(ctx context.Context, g *hongbao.Grab,
	do func(context.Context, *hongbao.Grab) (hongbao.Answer, error),
) (hongbao.Answer, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return do(ctx, g)
	}
	ctx, span := t.tracer.Start(ctx, "grab", trace.WithAttributes(attribute.String("hongbao.campaign", g.Campaign)))
	defer span.End()
	g.Trace = textOf(ctx)
	answer, err := do(ctx, g)
	if failed(span, err); err != nil {
		return answer, err
	}
	span.SetAttributes(attribute.String("hongbao.outcome", string(answer.Outcome)))
	if answer.Outcome == hongbao.OutcomeGranted && len(answer.Receipts) > 0 {
		r := &answer.Receipts[0]
		of := hongbao.Grant{Shard: r.Shard, Seq: r.Seq}
		span.SetAttributes(attribute.String("hongbao.event", of.EventID()), attribute.Int64("hongbao.packet", r.Packet))
	}
	return answer, nil
}

// Called creates spans for a finished call to Redis if some of its grabs are traced. traces are their traceparents.
func (t *Tracer) Called(campaign string, grabs int, traces []string, took time.Duration, err error) {
	if len(traces) == 0 {
		return
	}
	c := call{name: "redis grab.lua", kind: trace.SpanKindClient, end: time.Now(), attributes: []attribute.KeyValue{
		semconv.DBSystemNameRedis, semconv.DBOperationName("EVALSHA"), attribute.String("hongbao.campaign", campaign), attribute.Int("hongbao.grabs", grabs)}}
	c.start = c.end.Add(-took)
	for _, text := range traces {
		c.parts = sampled(c.parts, part{of: spanOf(text), err: err})
	}
	t.show(&c)
}
