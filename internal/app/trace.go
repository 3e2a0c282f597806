package app

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

// lastSpans is how long a process that ends waits for the collector.
const lastSpans = 3 * time.Second

// trace begins to trace what the process does, if there is a collector. oneIn is that of tracing.Options.
func (a *App) trace(ctx context.Context, command string, oneIn int) error {
	cfg := a.Config.Tracing
	if cfg.Endpoint == "" {
		return nil
	}
	t, err := tracing.New(ctx, tracing.Options{Endpoint: cfg.Endpoint, OneIn: oneIn, PerSecond: cfg.PerSecond,
		Service: "hongbao-" + command, Version: version(), Instance: a.worker, Deployment: a.Config.Deployment.ID, Log: a.log})
	if err != nil {
		return err
	}
	a.tracer = t
	a.atEnd(func() error {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		if err := t.Close(ending); err != nil { // what was asked of the process is done all the same
			a.log.Warn("the collector did not get the last spans", zap.Error(err))
		}
		return nil
	})
	a.log.Info("tracing", zap.String("endpoint", cfg.Endpoint), zap.Int("one_in", oneIn))
	return nil
}

// watchRequests gives h, measured and traced as the configuration says.
func (a *App) watchRequests(h http.Handler) http.Handler {
	if a.measures != nil {
		h = a.measures.set.Requests(h)
	}
	if a.tracer != nil {
		h = a.tracer.Requests(h)
	}
	return h
}

// traceSink gives h, with spans of its calls.
func (a *App) traceSink(sink string, h hongbao.Handler) hongbao.Handler {
	if a.tracer == nil {
		return h
	}
	topic := ""
	if sink == configs.SinkKafka {
		topic = a.Config.Publisher.Topic
	}
	return a.tracer.Sink(sink, topic, h)
}

// traceCalls makes spans of the calls to Redis of the producer that is to be made of grabs.
func (a *App) traceCalls(grabs *producer.Config) {
	if a.tracer == nil {
		return
	}
	counted := grabs.Called
	grabs.Called = func(c producer.Call) {
		counted(c)
		a.tracer.Called(c.Campaign, c.Grabs, c.Traces, c.Took, c.Err)
	}
}

// traceGrabs gives g, with spans of its grabs. It stands outside of what measures them: exemplars need the trace.
func (a *App) traceGrabs(g serve.Grabber) serve.Grabber {
	if a.tracer == nil {
		return g
	}
	return traced{g, a.tracer}
}

// traced decides grabs, and traces some.
type traced struct {
	serve.Grabber
	tracer *tracing.Tracer
}

// Grab implements serve.Grabber.
func (t traced) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	return t.tracer.Grab(ctx, g, t.Grabber.Grab)
}
