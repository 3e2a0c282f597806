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

// Options of a Tracer.
type Options struct {
	// Endpoint is the collector's, such as http://127.0.0.1:4318; /v1/traces is appended to it.
	Endpoint string
	// OneIn says that one request of this many starts a trace, if its caller has not decided; 0 for none.
	OneIn int
	// PerSecond bounds the traces that this process starts, and separately those that callers ask for.
	PerSecond int
	// Service and Instance name this process.
	Service, Version, Instance, Deployment string
	Log                                    *zap.Logger
}

// Tracer creates spans and sends them. Its methods are safe for concurrent use; only Close waits for the collector.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	oneIn    int
	// Callers may be strangers: they can't use up the traces that this process starts.
	own, asked *rate.Limiter
}

// New returns a Tracer. It connects to no server yet: an unreachable collector costs its spans and nothing else.
func New(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(strings.TrimRight(o.Endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "tracing.endpoint: %w", err)
	}
	log := o.Log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 1, 0)
	}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // otherwise it writes to standard error
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

// with returns a Tracer whose spans go to p. A caller that begins a span has decided that it is sampled.
func with(p sdktrace.SpanProcessor, of *resource.Resource, o Options) *Tracer {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(of),
		sdktrace.WithSpanProcessor(p))
	bound := func() *rate.Limiter { return rate.NewLimiter(rate.Limit(o.PerSecond), o.PerSecond) }
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/hongbao-project/hongbao"), oneIn: o.OneIn,
		own: bound(), asked: bound()}
}

// Close sends the spans that are left, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// begins reports whether a request is traced, and returns the context with the parent of its span. A caller who sends a
// traceparent has decided; an unreadable one counts as none. All callers together get no more traces than the bound.
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

// traceparent is the name of the header, and of the only field that travels: tracestate does not.
const traceparent = "traceparent"

// spanOf reads a traceparent. An unreadable one returns an invalid context.
func spanOf(text string) trace.SpanContext {
	if text == "" || len(text) > maxTraceparent {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: text})
	return trace.SpanContextFromContext(ctx)
}

// maxTraceparent is more than version 00 needs: a later version may be longer.
const maxTraceparent = 128

// textOf writes a traceparent.
func textOf(ctx context.Context) string {
	var c propagation.MapCarrier = map[string]string{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[traceparent]
}

// failed marks a span whose work failed, with the class of the error: its text may name a user.
func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	class := hongbao.ClassOf(err).String()
	switch {
	case hongbao.IsHeld(err):
		class = "held"
	case hongbao.IsOutage(err):
		class = "outage"
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(class))
	span.SetStatus(codes.Error, class)
}
