package tracing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"

	"github.com/hongbao-project/hongbao"
)

// Options configure a Tracer.
type Options struct {
	// Endpoint is the base URL of the collector, such as http://127.0.0.1:4318. The Tracer appends /v1/traces.
	Endpoint string
	// OneIn is the sampling ratio: one request in OneIn starts a trace. It applies to requests without a valid
	// traceparent. 0 means none.
	OneIn int
	// PerSecond limits the traces that this process starts. The traces that callers ask for have a separate limit of
	// the same size.
	PerSecond int
	// Service and Instance identify this process in its spans.
	Service, Version, Instance, Deployment string
	Log                                    *zap.Logger
}

// Tracer creates spans and exports them. Its methods are safe for concurrent use. Only Close waits for the collector.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	oneIn    int
	// Callers are not trusted. With a limiter of their own, they can't use up the traces that this process starts.
	own, asked *rate.Limiter
}

// New returns a Tracer. It does not connect to the collector yet. If the collector is unreachable, spans are lost, and
// nothing else fails.
func New(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(strings.TrimRight(o.Endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "tracing.endpoint: %w", err)
	}
	log := o.Log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 1, 0)
	}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // the default handler writes to standard error
		log.Warn("spans are lost, tracing continues", zap.Error(err))
	}))
	of, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceVersion(o.Version),
			semconv.ServiceInstanceID(o.Instance), attribute.String("hongbao.deployment", o.Deployment)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(hongbao.Errorf(hongbao.ClassBroken, "read OTEL_RESOURCE_ATTRIBUTES: %w", err),
			exporter.Shutdown(ctx))
	}
	return with(sdktrace.NewBatchSpanProcessor(exporter), of, o), nil
}

// with returns a Tracer whose spans go to p. It samples every span, because callers create spans only for traced
// requests.
func with(p sdktrace.SpanProcessor, of *resource.Resource, o Options) *Tracer {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(of),
		sdktrace.WithSpanProcessor(p))
	bound := func() *rate.Limiter { return rate.NewLimiter(rate.Limit(o.PerSecond), o.PerSecond) }
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/hongbao-project/hongbao"), oneIn: o.OneIn,
		own: bound(), asked: bound()}
}

// Close sends the remaining spans. It gives up when ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// begins decides whether a request is traced, and returns the context for its span. The request's traceparent decides;
// without a valid one, a random sample is traced. Both kinds of traces have a limit per second.
func (t *Tracer) begins(ctx context.Context, traceparents []string) (context.Context, bool) {
	if len(traceparents) == 1 {
		if of := spanOf(traceparents[0]); of.IsValid() {
			if !of.IsSampled() || !t.asked.Allow() {
				return ctx, false
			}
			return trace.ContextWithRemoteSpanContext(ctx, of), true
		}
	}
	return ctx, t.oneIn > 0 && rand.IntN(t.oneIn) == 0 && t.own.Allow()
}

// traceparent is the name of the HTTP header, and of the only field that is propagated: tracestate is not.
const traceparent = "traceparent"

// spanOf parses a traceparent. For an invalid one it returns an invalid context.
func spanOf(text string) trace.SpanContext {
	if text == "" || len(text) > maxTraceparent {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: text})
	return trace.SpanContextFromContext(ctx)
}

// maxTraceparent exceeds the 55 bytes of version 00, because a later version may be longer.
const maxTraceparent = 128

// textOf formats the span context of ctx as a traceparent.
func textOf(ctx context.Context) string {
	var c propagation.MapCarrier = map[string]string{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[traceparent]
}

// failed marks a span as failed. It records only the class of the error, since the text may contain a user id.
func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	class := hongbao.ClassOf(err).String()
	switch {
	case hongbao.IsWaiting(err):
		class = "waiting"
	case hongbao.IsOutage(err):
		class = "outage"
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(class))
	span.SetStatus(codes.Error, class)
}
