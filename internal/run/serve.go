package run

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/producer"
)

// Serving has the options of Serve. Each field may be zero. A development server sets the last three.
type Serving struct {
	// Control runs the administration API and the console in the same process, as the function Control does.
	Control bool
	// Guard wraps the handler of every listener.
	Guard func(http.Handler) http.Handler
	// Ready is called once all listeners are open, with their addresses and the server's Grabber.
	Ready func(Addresses, serve.Grabber)
	// Faults are the faults that a user of the console can inject.
	Faults console.Faults
}

// Addresses are the addresses of the listeners of Serve. Control is nil without Serving.Control.
type Addresses struct {
	serve.Addresses
	Control net.Addr
}

// Serve answers grabs over HTTP until ctx ends.
func Serve(ctx context.Context, cfg *configs.Config, with Serving) (err error) {
	server, err := serveConfig(cfg, with.Control)
	if err != nil {
		return err
	}
	p, err := newProcess(cfg, "serve", true)
	if err != nil {
		return err
	}
	defer p.stop(ctx, &err)
	if err := p.trace(ctx, cfg.Tracing.OneIn); err != nil {
		return err
	}
	if err := p.await(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	defer p.TendJournal(ctx)()
	counts := newAnswers(p.Store(), p.Worker(), p.Log())
	defer inBackground(ctx, counts.run)() // ends after the last grab
	grabber, finish, err := p.grabber(counts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish(ctx)) }()
	s, err := p.newServer(&server, grabber, counts, with.Guard)
	if err != nil {
		return err
	}
	ready := func(at serve.Addresses, control net.Addr) {
		p.Log().Info("serving grabs", zap.Stringer("address", at.Public), zap.Bool("tls", server.TLS != nil), zap.Stringer("ops", at.Ops))
		if with.Ready != nil {
			with.Ready(Addresses{at, control}, grabber)
		}
	}
	if !with.Control {
		return s.Run(ctx, func(at serve.Addresses) { ready(at, nil) })
	}
	administration := cfg.ControlConfig()
	p.exportState()
	a, err := p.administer(ctx, &administration, with)
	if err != nil {
		return err
	}
	close(a.opened)
	ctx, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() {
		defer end()
		ran <- a.run(ctx)
	}()
	err = s.Run(ctx, func(at serve.Addresses) { ready(at, a.open.Addr()) })
	end()
	return errors.Join(err, <-ran)
}

func serveConfig(cfg *configs.Config, withControl bool) (serve.Config, error) {
	server := cfg.ServeConfig()
	if err := errors.Join(server.Check(), cfg.CheckServe()); err != nil {
		return server, app.Usage("%w", err)
	}
	if !withControl {
		return server, nil
	}
	_, err := controlConfig(cfg)
	return server, err
}

// newServer returns the server of grabs. Its callers may have API keys if there is a ledger, which has the keys.
func (p *process) newServer(cfg *serve.Config, g serve.Grabber, counts *answerCounts, guard func(http.Handler) http.Handler,
) (*serve.Server, error) {
	if cfg.TLS == nil && p.Allows(configs.UnsafeServeListen) {
		p.Log().Warn("unsafe.allow: tokens are sent in clear text to " + cfg.Listen)
	}
	deps := serve.Deps{Grabber: g, Refused: counts.refused, Wrap: p.watchRequests, Metrics: p.set.Handler(), Pprof: p.Config.Ops.Pprof,
		Reader: find.NewReader(p.App), KeyFile: p.Config.ServeKeyFile(),
		Guard: guard, Log: p.Log(), Opener: p.Config.Seams.Listen, Connections: p.set.Connections()}
	if p.Config.Ledger.DSN != "" {
		deps.Keys, deps.Denied = p.Authority(), p.Denied
		p.set.Keys(p.Authority().Ends)
	}
	return serve.New(*cfg, deps)
}

// inBackground runs a function until stop is called, and then waits for it.
func inBackground(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// grabber returns a producer with metrics and tracing. finish closes it and waits for its calls.
func (p *process) grabber(to *answerCounts) (g serve.Grabber, finish func(context.Context) error, err error) {
	cfg := p.Config.Producer
	cfg.Deployment = p.Deployment()
	counts := p.set.Grabs()
	cfg.Called = func(c producer.Call) { counts.Called(c.Campaign, c.Grabs, c.Took, c.Err) }
	p.set.Remembered(p.Store().Remembered)
	p.exportLeft(counts)
	p.traceCalls(&cfg)
	grabs, err := producer.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	grabs.Watch() // the server also remembers receipts that it only reads
	finish = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.CallTimeout)
		defer cancel()
		return grabs.Close(ctx)
	}
	return p.traceGrabs(&measuredGrabber{grabs, counts, to}), finish, nil
}

// measuredGrabber counts grabs and their outcomes, for the metrics and for the campaign's answers in Redis.
type measuredGrabber struct {
	*producer.Producer
	counts  *metrics.GrabCounts
	answers *answerCounts
}

// Grab implements serve.Grabber.
func (m *measuredGrabber) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	start := time.Now()
	answer, err := m.Producer.Grab(ctx, g)
	m.counts.Grabbed(ctx, g, answer.Outcome, err, time.Since(start))
	switch {
	case err == nil:
		m.answers.decided(g.Campaign, answer.Outcome)
	case !errors.Is(ctx.Err(), context.Canceled):
		m.answers.undecided(g.Campaign, err)
	}
	return answer, err
}
