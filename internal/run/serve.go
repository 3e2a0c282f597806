package run

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/front/control"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/internal/ops/pages"
	"github.com/hongbao-project/hongbao/producer"
)

// Serving has what a development server adds to Serve. Each field may be nil.
type Serving struct {
	// Guard wraps the handler of every listener.
	Guard func(http.Handler) http.Handler
	// Ready is called once all listeners are open, with their addresses and the server's Grabber.
	Ready func(serve.Addresses, serve.Grabber)
	// Faults are the faults that a user of the console can inject.
	Faults console.Faults
}

// Serve answers grabs over HTTP until ctx ends. If a ledger is configured, it also serves the administration API and
// the console, whose API keys are in the ledger.
func Serve(ctx context.Context, cfg *configs.Config, with Serving) (err error) {
	server := cfg.ServeConfig()
	if err := errors.Join(server.Check(), cfg.CheckServe()); err != nil {
		return app.Usage("%w", err)
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
	p.warnOfPlain(&server)
	defer p.TendJournal(ctx)()
	counts := newAnswers(p.Store(), p.Worker(), p.Log())
	defer inBackground(ctx, counts.run)() // ends after the last grab
	grabber, finish, err := p.grabber(counts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish(ctx)) }()
	deps := serve.Deps{Grabber: grabber, Refused: counts.refused, Wrap: p.watchRequests, Metrics: p.set.Handler(), Pprof: cfg.Ops.Pprof,
		Reader: find.NewReader(p.App), KeyFile: cfg.ServeKeyFile(),
		Guard: with.Guard, Log: p.Log(), Opener: cfg.Seams.Listen, Connections: p.set.Connections()}
	administer := func(context.Context) error { return nil }
	if cfg.Ledger.DSN == "" {
		p.Log().Info("no control listener: ledger.dsn is empty, and the API keys are in the ledger")
	} else {
		deps.Keys, deps.Denied = p.Authority(), p.Denied
		p.set.Keys(p.Authority().Ends)
		api, err := p.control(&server)
		if err != nil {
			return err
		}
		defer api.Close()
		source := pages.NewSource(p.App)
		site, err := p.console(&server, source, with.Faults)
		if err != nil {
			return err
		}
		if deps.Control, err = p.controlHandler(api, site); err != nil {
			return err
		}
		administer = func(ctx context.Context) error {
			if server.ControlListen != "" { // else the ledger's role may lack the right to read campaigns
				defer inBackground(ctx, source.Run)()
			}
			return site.Run(ctx)
		}
	}
	s, err := serve.New(server, deps)
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- administer(serving) }() // ends the open pages while the listeners drain
	err = s.Run(ctx, func(at serve.Addresses) {
		p.say(&server, at)
		if with.Ready != nil {
			with.Ready(at, grabber)
		}
	})
	end()
	return errors.Join(err, <-ran)
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

// warnOfPlain warns of listeners that unsafe.allow opens without TLS.
func (p *process) warnOfPlain(server *serve.Config) {
	if server.TLS == nil && p.Allows(configs.UnsafeServeListen) {
		p.Log().Warn("unsafe.allow: tokens are sent in clear text to " + server.Listen)
	}
	if server.ControlTLS == nil && p.Allows(configs.UnsafeControlListen) {
		p.Log().Warn("unsafe.allow: API keys are sent in clear text to " + server.ControlListen)
	}
}

// say logs the addresses of the open listeners.
func (p *process) say(server *serve.Config, at serve.Addresses) {
	fields := []zap.Field{zap.Stringer("address", at.Public), zap.Bool("tls", server.TLS != nil),
		zap.Stringer("ops", at.Ops)}
	if at.Control != nil {
		fields = append(fields, zap.Stringer("control", at.Control), zap.Bool("control_tls", server.ControlTLS != nil))
	}
	p.Log().Info("serving grabs", fields...)
}

// grabber returns a producer with metrics and tracing. finish closes it and waits for its calls.
func (p *process) grabber(to *answerCounts) (g serve.Grabber, finish func(context.Context) error, err error) {
	cfg := p.Config.Producer
	cfg.Deployment = p.Deployment()
	counts := p.set.Grabs()
	cfg.Called = func(c producer.Call) { counts.Called(c.Campaign, c.Grabs, c.Took, c.Err) }
	p.set.Remembered(p.Store().Remembered)
	p.exportState(counts)
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

// controlPatience is how long a request of the administration API waits for work that continues in the background.
const controlPatience = 10 * time.Second

func (p *process) control(server *serve.Config) (*control.Control, error) {
	return control.New(p.App, p.Authority(), p.Log(), control.Config{
		AnswerTime: server.AnswerTime(), Patience: min(controlPatience, server.AnswerTime()/2),
	})
}

func (p *process) console(server *serve.Config, source *pages.Source, faults console.Faults) (*console.Console, error) {
	return console.New(p.Config.Console, console.Deps{Source: source, Actions: pages.NewActions(p.App),
		Operations: func(who *access.Caller) console.Operations { return &ops.Local{App: p.App, Caller: who} },
		Authority:  p.Authority(), Faults: faults, Log: p.Log(), Deployment: p.Config.Deployment.ID,
		TLS: server.ControlTLS != nil})
}

// controlHandler returns the handler of the control listener: the administration API and the console, with metrics of
// their requests.
func (p *process) controlHandler(c *control.Control, pages http.Handler) (http.Handler, error) {
	api, err := c.API().Handler()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/v1", "/v1/", "/openapi.json"} {
		mux.Handle(path, api)
	}
	mux.Handle("/", pages)
	return p.requests("control_listen", web.CleanPaths(mux, api)), nil
}
