package run

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/front/control"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/pages"
)

// controlPatience is how long a request of the administration API waits for work that continues in the background.
const controlPatience = 10 * time.Second

// administration is the open control listener, with what it serves: the administration API and the console.
type administration struct {
	*process
	server  *serve.Config
	api     *control.Control
	source  *pages.Source
	site    *console.Console
	handler http.Handler
	open    net.Listener
}

// administer opens the control listener. guard, if not nil, wraps its handler. The caller must call run.
func (p *process) administer(ctx context.Context, server *serve.Config, guard func(http.Handler) http.Handler,
	faults console.Faults) (a *administration, err error) {
	a = &administration{process: p, server: server, source: pages.NewSource(p.App)}
	a.api, err = control.New(p.App, p.Authority(), p.Log(), control.Config{
		AnswerTime: server.AnswerTime(), Patience: min(controlPatience, server.AnswerTime()/2),
	})
	if err != nil {
		return nil, err
	}
	a.site, err = console.New(p.Config.Console, console.Deps{Source: a.source, Actions: pages.NewActions(p.App),
		Operations: func(who *access.Caller) console.Operations { return &ops.Local{App: p.App, Caller: who} },
		Authority:  p.Authority(), Faults: faults, Log: p.Log(), Deployment: p.Config.Deployment.ID,
		TLS: server.ControlTLS != nil})
	if err != nil {
		return nil, err
	}
	if a.handler, err = a.route(); err != nil {
		return nil, err
	}
	if guard != nil {
		a.handler = guard(a.handler)
	}
	if server.ControlTLS == nil && p.Allows(configs.UnsafeControlListen) {
		p.Log().Warn("unsafe.allow: API keys are sent in clear text to " + server.ControlListen)
	}
	a.open, err = web.Opener(p.Config.Seams.Listen).Listen(ctx, server.ControlListen, "serve.control_listen")
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
		mux.Handle(path, api)
	}
	mux.Handle("/", a.site)
	return a.requests("control_listen", web.CleanPaths(mux, api)), nil
}

// run serves until ctx ends. Then it ends the open pages, and returns when the running requests are answered or the drain
// time is over.
func (a *administration) run(ctx context.Context) error {
	defer a.api.Close()
	defer inBackground(ctx, a.source.Run)()
	site := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	defer end()
	go func() { site <- a.site.Run(serving) }()
	a.Log().Info("serving the administration", zap.Stringer("address", a.open.Addr()), zap.Bool("tls", a.server.ControlTLS != nil))
	l := netutil.LimitListener(a.open, a.server.Connections)
	if a.server.ControlTLS != nil {
		l = tls.NewListener(l, a.server.ControlTLS)
	}
	running := web.Start(context.WithoutCancel(ctx), l, a.handler, serve.Limits(a.server), a.Log())
	var err error
	select {
	case err = <-running.Ended:
	case <-ctx.Done():
	}
	end()
	return errors.Join(err, running.Stop(a.server.DrainTimeout, "their callers repeat them"), <-site)
}
