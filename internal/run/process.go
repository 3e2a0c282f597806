package run

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/tracing"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// process is the App of a long-lived process, with metrics and tracing if they are configured.
type process struct {
	*app.App
	command string
	set     *metrics.Set    // nil if this process exports no metrics
	tracer  *tracing.Tracer // nil if tracing is off
	// requests counts the requests of a listener; nil if this process exports no metrics.
	requests func(listener string, h http.Handler) http.Handler
}

// newProcess does not connect to any server. The caller must call stop.
func newProcess(cfg *configs.Config, command string, scraped bool) (*process, error) {
	var to io.Writer = os.Stderr
	if cfg.Seams.Log != nil {
		to = cfg.Seams.Log
	}
	log, err := cfg.Logger(to)
	if err != nil {
		return nil, err
	}
	p := &process{command: command}
	hooks := app.Hooks{Sink: p.traceSink}
	if scraped {
		p.set = metrics.New(command, version(), cfg.Deployment.ID)
		p.requests = p.set.Requests()
		log = p.set.CountAlarms(log)
		cfg.Watch(log)
		p.set.Certificates(cfg.CertificateEnds)
		p.set.Settings(metrics.Settings{UnsafeAllow: cfg.Unsafe.Allow, AuditMaxAge: cfg.Ops.AuditMaxAge})
		hooks.Ledger, hooks.Kafka = p.set.Ledger(), p.set.Kafka()
	}
	p.App, err = app.New(cfg, log, hooks)
	return p, err
}

// stop closes everything and adds the errors to err.
func (p *process) stop(ctx context.Context, err *error) {
	p.Shut(err)
	if p.tracer == nil {
		return
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	if err := p.tracer.Close(ending); err != nil { // only logged, because the process has done its work
		p.Log().Warn("the collector did not get the last spans", zap.Error(err))
	}
}

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.Main.Version
	}
	return "unknown"
}

// ops returns the process' ops listener, without profiling, which only opsPart adds.
func (p *process) ops(ready func() error) *web.Ops {
	listener := opsListeners(p.Config)[p.command]
	o := &web.Ops{Knob: listener[0], Listen: listener[1], Opener: p.Config.Seams.Listen, Log: p.Log(), Ready: ready}
	if p.set != nil {
		o.Metrics = p.set.Handler()
	}
	return o
}

// opsPart returns the ops listener as a part of a running process. Package serve has its own.
func (p *process) opsPart(ready func() error) group.Part {
	o := p.ops(ready)
	o.Pprof, o.Opened = p.Config.Ops.Pprof, func(at net.Addr) {
		p.Log().Info("serving metrics and health", zap.Stringer("address", at))
	}
	return group.Part{Name: "ops", Run: o.Run}
}

// exportState exports metrics of the deployment's state. The processes that do so run in every deployment that has to
// be watched: the workers, and the administration, which is there when all workers are scaled to zero. A server of grabs
// exports only what it decides, so that its number costs the stores nothing.
func (p *process) exportState() {
	p.set.State(p.poll(deliveries.Of(p.App).State))
}

// exportLeft exports how many packets the campaigns have left whose grabs this process has decided.
func (p *process) exportLeft(counts *metrics.GrabCounts) {
	p.set.Left(p.poll(func(ctx context.Context) (*metrics.State, error) {
		return deliveries.Of(p.App).Left(ctx, counts.Seen(p.Config.Ops.Campaigns))
	}))
}

func (p *process) poll(ask func(context.Context) (*metrics.State, error)) metrics.Poll {
	return metrics.Poll{Every: p.Config.Ops.Poll, Timeout: p.Config.Ops.PollTimeout, Ask: ask}
}
