package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"
)

// Ops is a listener for probes and metrics, which only machines read. OpsHandler describes its answers.
type Ops struct {
	// Listen is the address; if it is empty, there is no listener. Knob is the configuration key of the
	// address.
	Listen, Knob string
	Opener       Opener
	// Ready returns nil if the process is ready for work, or the reason why it is not.
	Ready   func() error
	Metrics http.Handler
	Pprof   bool
	Log     *zap.Logger
	// Opened, if not nil, is called with the address after the listener is open.
	Opened func(net.Addr)
}

// Run serves until ctx ends, and then interrupts requests that take longer than a second. Without an address it only
// waits for ctx.
func (o *Ops) Run(ctx context.Context) error {
	if o.Listen == "" {
		<-ctx.Done()
		return nil
	}
	l, err := o.Opener.Listen(ctx, o.Listen, o.Knob)
	if err != nil {
		return err
	}
	if o.Opened != nil {
		o.Opened(l.Addr())
	}
	s := Start(context.WithoutCancel(ctx), l, OpsHandler(o.Ready, o.Metrics, o.Pprof), Limits{
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute}, o.Log)
	select {
	case err := <-s.Ended:
		return err
	case <-ctx.Done():
	}
	if err := s.Stop(time.Second, "they were requests of the ops listener"); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // a probe or a scrape that was interrupted comes again; it must not end the process
}

// OpsHandler returns a handler for /livez, /readyz, /metrics (unless metrics is nil) and /debug/pprof (if
// profiles is set). ready returns nil if the process is ready for work, or the reason why it is not. Only
// /metrics queries other servers, for a limited time.
func OpsHandler(ready func() error, metrics http.Handler, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { health(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { health(w, ready()) })
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	if !profiles {
		return mux
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// ErrOpening means that a process is still connecting to its stores.
var ErrOpening = errors.New("opening")

func health(w http.ResponseWriter, why error) {
	w.Header().Set("Cache-Control", "no-store")
	code, status := http.StatusOK, "ok"
	if why != nil {
		code, status = http.StatusServiceUnavailable, why.Error()
	}
	WriteJSON(w, code, map[string]string{"status": status})
}
