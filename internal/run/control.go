package run

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/netutil"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/front/control"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
	"github.com/hongbao-project/hongbao/internal/ops/pages"
)

// controlPatience is how long a request of the administration API waits for work that continues in the background.
const controlPatience = 10 * time.Second

// The time limits of a connection to the control listener that no setting changes, and how many may be open.
const (
	controlHeaderTimeout, controlIdleTimeout = 5 * time.Second, 75 * time.Second
	controlConnections                       = 20_000
)

// Control serves the administration API and the console until ctx ends. It answers no users, so it is no witness of
// their grants.
func Control(ctx context.Context, cfg *configs.Config) (err error) {
	server, err := controlConfig(cfg)
	if err != nil {
		return err
	}
	p, err := newProcess(cfg, "control", true)
	if err != nil {
		return err
	}
	defer p.stop(ctx, &err)
	if err := p.trace(ctx, 0); err != nil {
		return err
	}
	p.set.Keys(p.Authority().Ends)
	p.exportState()
	a, err := p.administer(ctx, &server, Serving{})
	if err != nil {
		return err
	}
	return group.Run(ctx, p.opsPart(func() error { return nil }), group.Part{Name: "redis", Run: a.openRedis},
		group.Part{Name: "control", Run: a.run})
}

// redisEvery is the longest time between two attempts of control to open Redis.
const redisEvery = 5 * time.Second

// openRedis opens Redis, however long it takes. Meanwhile people can log in and see what the ledger has. Then openRedis
// tends the journal until ctx ends.
func (a *administration) openRedis(ctx context.Context) error {
	if err := a.awaitRedis(ctx, redisEvery); err != nil || ctx.Err() != nil {
		return err
	}
	close(a.opened)
	defer a.TendJournal(ctx)()
	<-ctx.Done()
	return nil
}

func controlConfig(cfg *configs.Config) (configs.Control, error) {
	server := cfg.ControlConfig()
	if err := errors.Join(server.Check(), cfg.CheckControl()); err != nil {
		return server, app.Usage("%w", err)
	}
	return server, nil
}

// administration is the open control listener, with what it serves: the administration API and the console.
type administration struct {
	*process
	server  *configs.Control
	jobs    *jobs.Registry
	api     *control.Control
	source  *pages.Source
	site    *console.Console
	handler http.Handler
	open    net.Listener
	// opened is closed once Redis was checked. Until then, every change is refused.
	opened chan struct{}
}

// administer opens the control listener. The caller must call run.
func (p *process) administer(ctx context.Context, server *configs.Control, with Serving) (a *administration, err error) {
	a = &administration{process: p, server: server, source: pages.NewSource(p.App), opened: make(chan struct{})}
	a.jobs = jobs.New(p.Access(), p.Worker(), p.Log())
	a.api, err = control.New(control.Config{AnswerTime: server.AnswerTime(), Patience: min(controlPatience, server.AnswerTime()/2)},
		control.Deps{App: p.App, Authority: p.Authority(), Jobs: a.jobs, History: a.source.History, Log: p.Log()})
	if err != nil {
		return nil, err
	}
	a.site, err = console.New(p.Config.Console, console.Deps{Source: a.source, Actions: pages.NewActions(p.App),
		Operations: func(who *access.Caller) console.Operations { return &ops.Local{App: p.App, Caller: who} },
		Authority:  p.Authority(), Jobs: a.jobs, Faults: with.Faults, Log: p.Log(), Deployment: p.Config.Deployment.ID,
		TLS: server.TLS != nil})
	if err != nil {
		return nil, err
	}
	if a.handler, err = a.route(); err != nil {
		return nil, err
	}
	if with.Guard != nil {
		a.handler = with.Guard(a.handler)
	}
	if server.TLS == nil && p.Allows(configs.UnsafeControlListen) {
		p.Log().Warn("unsafe.allow: API keys are sent in clear text to " + server.Listen)
	}
	a.open, err = web.Opener(p.Config.Seams.Listen).Listen(ctx, server.Listen, "control.listen")
	return a, err
}

// route returns the handler of the administration API and of the console, with metrics of their requests.
func (a *administration) route() (http.Handler, error) {
	api, err := a.api.API().Handler()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/v1", "/v1/", "/openapi.json"} {
		mux.Handle(path, a.checked(api))
	}
	for _, path := range []string{"/login", "/logout", "/language"} { // of the session and the browser only
		mux.Handle("POST "+path, a.site)
	}
	mux.Handle("/", a.checked(a.site))
	return a.requests("control", web.CleanPaths(mux, api)), nil
}

// openPatience is how long a change waits until Redis is opened. A server that answers is opened within that time.
const openPatience = time.Second

// checked refuses changes while Redis was not opened, because it may be another deployment's, or may lose writes.
func (a *administration) checked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !a.isOpened(r.Context()) {
			web.Fail(w, r, a.Log(), zapcore.InfoLevel, web.Refuse("unavailable", "redis was not opened since this process started; it is "+
				"tried again and again: `hongbao doctor` says what is wrong"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isOpened waits up to openPatience until Redis is opened, and reports whether it is.
func (a *administration) isOpened(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	select {
	case <-a.opened:
		return true
	case <-ctx.Done():
		return false
	}
}

// run serves until ctx ends. Then it ends the open pages, and returns when the running requests are answered or the drain
// time is over, and the jobs have stopped.
func (a *administration) run(ctx context.Context) error {
	defer a.jobs.Close()
	defer inBackground(ctx, a.Authority().Refresh)()
	defer inBackground(ctx, a.source.Run)()
	site := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	defer end()
	go func() { site <- a.site.Run(serving) }()
	a.Log().Info("serving the administration", zap.Stringer("address", a.open.Addr()), zap.Bool("tls", a.server.TLS != nil))
	l := netutil.LimitListener(a.open, controlConnections)
	if a.server.TLS != nil {
		l = tls.NewListener(l, a.server.TLS)
	}
	running := web.Start(context.WithoutCancel(ctx), l, a.handler, web.Limits{
		ReadHeaderTimeout: min(controlHeaderTimeout, a.server.ReadTimeout), ReadTimeout: a.server.ReadTimeout,
		WriteTimeout: a.server.WriteTimeout, IdleTimeout: controlIdleTimeout}, a.Log())
	var err error
	select {
	case err = <-running.Ended:
	case <-ctx.Done():
	}
	end()
	return errors.Join(err, running.Stop(a.server.DrainTimeout, "their callers repeat them"), <-site)
}
