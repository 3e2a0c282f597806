package run

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/tracing"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/producer"
)

// lastSpans is how long a process waits at its end to send the last spans to the collector.
const lastSpans = 3 * time.Second

// trace starts tracing if a collector is configured. oneIn is passed to tracing.Options.
func (p *process) trace(ctx context.Context, oneIn int) error {
	cfg := p.Config.Tracing
	if cfg.Endpoint == "" {
		return nil
	}
	t, err := tracing.New(ctx, tracing.Options{Endpoint: cfg.Endpoint, OneIn: oneIn, PerSecond: cfg.PerSecond,
		Service: "hongbao-" + p.command, Version: version(), Instance: p.Worker(), Deployment: p.Config.Deployment.ID, Log: p.Log()})
	if err != nil {
		return err
	}
	p.tracer = t
	p.Log().Info("tracing", zap.String("endpoint", cfg.Endpoint), zap.Int("one_in", oneIn))
	return nil
}

// watchRequests returns the handler h of the public listener with metrics and tracing of its requests, if they are
// configured.
func (p *process) watchRequests(h http.Handler) http.Handler {
	if p.requests != nil {
		h = p.requests("listen", h)
	}
	if p.tracer != nil {
		h = p.tracer.Requests(h)
	}
	return h
}

// traceSink returns h with a span for each of its calls, if tracing is on.
func (p *process) traceSink(sink string, h hongbao.Handler) hongbao.Handler {
	if p.tracer == nil {
		return h
	}
	topic := ""
	if sink == configs.SinkKafka {
		topic = p.Config.Publisher.Topic
	}
	return p.tracer.Sink(sink, topic, h)
}

// traceCalls changes a producer's configuration, so that each of its Redis calls makes a span.
func (p *process) traceCalls(grabs *producer.Config) {
	if p.tracer == nil {
		return
	}
	counted := grabs.Called
	grabs.Called = func(c producer.Call) {
		counted(c)
		p.tracer.Called(c.Campaign, c.Grabs, c.Traces, c.Took, c.Err)
	}
}

// traceGrabs returns g with spans for its grabs, if tracing is on. It must wrap the measuring Grabber, whose exemplars
// need the trace.
func (p *process) traceGrabs(g serve.Grabber) serve.Grabber {
	if p.tracer == nil {
		return g
	}
	return traced{g, p.tracer}
}

// traced is a Grabber that traces some of its grabs.
type traced struct {
	serve.Grabber
	tracer *tracing.Tracer
}

// Grab implements serve.Grabber.
func (t traced) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	return t.tracer.Grab(ctx, g, t.Grabber.Grab)
}
