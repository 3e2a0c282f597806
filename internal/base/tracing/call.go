package tracing

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/hongbao-project/hongbao"
)

// call is one call that handles many grabs, some of which are traced.
type call struct {
	name       string
	kind       trace.SpanKind
	start, end time.Time
	attributes []attribute.KeyValue
	parts      []part
}

// part describes one traced grab within a call.
type part struct {
	of         trace.SpanContext
	err        error
	attributes []attribute.KeyValue
}

// sampled appends p to parts if its trace is sampled.
func sampled(parts []part, p part) []part {
	if !p.of.IsSampled() {
		return parts
	}
	return append(parts, p)
}

// show creates the spans of a call. The call has a span in a trace of its own, with a link to each traced grab. Each
// grab's trace also gets a span, with a link back.
func (t *Tracer) show(c *call) {
	links := make([]trace.Link, len(c.parts))
	for i := range c.parts {
		links[i].SpanContext = c.parts[i].of
	}
	whole, span := t.tracer.Start(context.Background(), c.name+", whole call", trace.WithSpanKind(c.kind),
		trace.WithTimestamp(c.start), trace.WithLinks(links...), trace.WithAttributes(c.attributes...))
	span.End(trace.WithTimestamp(c.end))
	back := trace.Link{SpanContext: trace.SpanContextFromContext(whole)}
	for _, p := range c.parts {
		_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), p.of), c.name,
			trace.WithSpanKind(c.kind), trace.WithTimestamp(c.start), trace.WithLinks(back),
			trace.WithAttributes(c.attributes...), trace.WithAttributes(p.attributes...))
		failed(span, p.err)
		span.End(trace.WithTimestamp(c.end))
	}
}

// work returns the kind and the attributes of the spans for calls of a sink's handler. A sink with a topic is a
// producer; any other sink is a consumer of Redis streams.
func work(sink, topic string) (trace.SpanKind, []attribute.KeyValue) {
	if topic != "" {
		return trace.SpanKindProducer, []attribute.KeyValue{attribute.String("hongbao.sink", sink),
			semconv.MessagingSystemKafka, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
			semconv.MessagingDestinationName(topic)}
	}
	return trace.SpanKindConsumer, []attribute.KeyValue{attribute.String("hongbao.sink", sink),
		semconv.MessagingSystemKey.String("redis"), semconv.MessagingOperationName("process"),
		semconv.MessagingOperationTypeProcess}
}

// Sink wraps a sink's handler and creates spans for calls that contain traced grants. topic is the topic that the sink
// writes to, or "".
func (t *Tracer) Sink(sink, topic string, h hongbao.Handler) hongbao.Handler {
	kind, attributes := work(sink, topic)
	return hongbao.HandlerFunc(func(ctx context.Context, b hongbao.Batch) []error {
		start, grants := time.Now(), b.Grants
		errs := h.Handle(ctx, b)
		var parts []part
		for i := range grants {
			if grants[i].Trace == "" {
				continue
			}
			var err error
			if len(errs) == len(grants) {
				err = errs[i]
			}
			parts = sampled(parts, partOf(&grants[i], err))
		}
		if len(parts) > 0 {
			t.show(&call{name: "sink " + sink, kind: kind, start: start, end: time.Now(), parts: parts,
				attributes: append(slices.Clip(attributes), semconv.MessagingBatchMessageCount(len(grants)))})
		}
		return errs
	})
}

func partOf(g *hongbao.Grant, err error) part {
	return part{of: spanOf(g.Trace), err: err, attributes: []attribute.KeyValue{
		attribute.String("hongbao.campaign", g.Campaign), attribute.String("hongbao.event", g.EventID()),
		attribute.Int64("hongbao.packet", g.Packet), attribute.String("hongbao.entry", g.EntryID)}}
}
